"""The run index: a SQLite file with a row a run, kept up with the log by one process of a host and read by all of its
front ends.

rows.py is pure: what events make of a row; file.py writes and reads the file; follower.py reads the log; run_index.py
answers lists.

Not here: the runs themselves (runs/loading.py). Start reading at rows.py.
"""
