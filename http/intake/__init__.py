"""What comes from outside and is stored on the EVENTS stream: signed webhooks (webhooks.py), and events that a program
sends (events.py).

Not here: which runs start on it (actors/triggers, engine/trigger). Start reading at events.py.
"""
