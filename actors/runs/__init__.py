"""Runs: a shard owns partitions of the history, an actor owns a run; it folds events, carries out commands, writes
snapshots.

shard.py gives events to run_actor.py, one actor a run; effects.py carries out its commands, by timers.py, outputs.py
and approval_requests.py; loading.py reads a run from the store; dead_letters.py keeps events that cannot be applied.
mailbox.py has the events that wait, snapshot_queue.py the runs that are to be saved; lease.py says whether this shard
may act, broker_clock.py what time it is. run_metrics.py and spans.py are derived from each fold.

Not here: which partitions a shard owns (ownership/), requests of users (control/). Start reading at run_actor.py.
"""
