"""Triggers: what starts runs without a request for each, as pure values.

trigger.py is what a user writes and the store holds; cron.py computes the instants of an expression; trigger_events.py
decides which run a trigger event starts, batching.py when several events start one; signatures.py verifies webhooks.

Not here: consumers and streams (broker/triggers, actors/triggers). Start reading at trigger.py.
"""
