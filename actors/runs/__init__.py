"""Runs: a shard owns partitions of the history, an actor owns a run; it folds events, carries out commands, writes
snapshots.

shard.py gives events to run_actor.py, one actor a run; effects.py carries out its commands, by timers.py and
outputs.py; loading.py reads a run; lease.py says whether this shard may act. run_metrics.py and spans.py look at each
fold.

Not here: which partitions a shard owns (ownership/), requests of users (control/). Start reading at run_actor.py.
"""
