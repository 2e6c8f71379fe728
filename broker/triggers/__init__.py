"""What triggers need at the broker: their records, durable consumers where they listen, streams that keep what else
nobody keeps.

Not here: what an event of a trigger starts (engine/trigger, actors/triggers). Start reading at triggers.py.
"""
