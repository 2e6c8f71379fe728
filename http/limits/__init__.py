"""/limits: who holds slots and who waits for them, and how much is allowed.

responders.py reads requests and answers them, seen.py makes the answers out of what is registered and what the owners
of limits say, forms.py reads bodies and query strings.

Not here: who gets a slot (engine/limits), the owners (actors/runs/limits). Start reading at responders.py.
"""
