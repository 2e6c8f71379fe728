"""Looking after the store, in rounds that take a small share of the time: what nobody waits for.

retention.py removes what has ended; lost_tasks.py, unserved.py and overdue.py find what nobody would move any more;
former_names.py moves what an older version queued; rounds.py bounds the time of all of them.

Not here: anything that a run waits for in order. Start reading at rounds.py.
"""
