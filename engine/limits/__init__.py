"""Limits: how many runs or executions go on at a time, and how many begin in a time, by scope and key.

A limit folds a log of its own, as a run does. `records.py` has the records of that log, `state.py` what is known of one
limit, `fold.py` how each record changes it, and `allot.py` decides who gets a slot: it returns a decision, which is
itself a record, so that a newer version never decides again what an older one has decided. `waiting.py` has the order
of those that wait, `rates.py` counts tokens, `compaction.py` keeps the log short, and `listing.py` is for people.
`names.py` says which limit a scope and a key are, `configs.py` how much is allowed now.

Not here: how a run asks and what it does with the answer (engine/run/slots), and clocks. Start reading at `allot`.
"""
