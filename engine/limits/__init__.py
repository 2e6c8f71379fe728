"""Limits: how many runs or executions go on at a time, and how many begin in a time, by scope and key.

A limit folds a log of its own, as a run does. `records.py` has the records of that log, `state.py` what is known of one
limit, `fold.py` how each record changes it, and `allot.py` decides who gets a slot: it returns a decision, which is
itself a record, so that a newer version never decides again what an older one has decided. `names.py` says which limit
a scope and a key are, `configs.py` what definitions and people say of it, and what of that counts.

Not here: how a run asks and what it does with the answer (engine/run/slots), and clocks. Start reading at `allot`.
"""
