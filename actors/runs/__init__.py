"""Runs: a shard owns partitions of the history, an actor owns a run; it folds events, carries out commands, writes
snapshots.

shard.py gives events to run_actor.py, one actor a run; packed_actors.py has those that are too many; actor_state.py
says whether a run needs a snapshot; effects.py carries out its commands, by timers.py, outputs.py and the modules of
commands/; loading.py reads a run from the store, past_runs.py one as it once was, new_runs.py the definition of a new
one; dead_letters.py keeps events that cannot be applied, and putting_away.py removes what is archived or removed.
waits/ has the steps that wait for events, limits/ who gets the slots of limits. What all of them use is in shared/:
queues, lease, clock, metrics.

Not here: which partitions a shard owns (ownership/), requests of users (control/). Start reading at run_actor.py.
"""
