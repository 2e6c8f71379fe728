"""Maintenance of the store, in rounds that take a bounded share of the time.

retention.py removes data of ended runs, and old runs; pruning.py removes runs, for it and on request; archiving.py
moves runs that ended long ago into the archive, archivable.py says which and what of them; lost_tasks.py, unserved.py,
orphaned_tasks.py and overdue.py find tasks and schedules that would wait for ever; away_workers.py removes the
consumers of killed workers; former_names.py moves tasks that an older version queued under another name; rounds.py
repeats all of these and bounds their time.

Not here: anything that a run waits for in normal operation. Start reading at rounds.py.
"""
