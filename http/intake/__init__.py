"""What other programs send: calls of a workflow, which are answered with what its run gives (calls.py), and what is
stored on the EVENTS stream: signed webhooks (webhooks.py), and events (events.py).

Not here: which runs start on events (actors/triggers, engine/trigger). Start reading at events.py.
"""
