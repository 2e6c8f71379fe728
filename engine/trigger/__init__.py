"""Triggers: what starts runs without a request of its own, as pure values.

trigger.py is what a user writes and the store keeps; cron.py knows the instants of an expression; trigger_events.py
says which run an event of a trigger starts; signatures.py judges webhooks.

Not here: consumers and streams (broker/triggers, actors/triggers). Start reading at trigger.py.
"""
