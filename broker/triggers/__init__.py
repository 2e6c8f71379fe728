"""What triggers need at the broker: their records, durable consumers, streams for subjects that no other stream stores,
and open batches.

Not here: what a trigger event starts (engine/trigger, actors/triggers). Start reading at triggers.py.
"""
