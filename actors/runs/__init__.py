"""Runs: a shard owns partitions of the history, an actor owns a run; it folds events, carries out commands, writes
snapshots.

shard.py gives events to run_actor.py, one actor a run; effects.py carries out its commands, by timers.py, outputs.py
and approval_requests.py; loading.py reads a run from the store; dead_letters.py keeps events that cannot be applied.
item_cache.py keeps the elements of maps. waits/ has the steps that wait for events. What all of them use is in shared/:
queues, lease, clock, metrics.

Not here: which partitions a shard owns (ownership/), requests of users (control/). Start reading at run_actor.py.
"""
