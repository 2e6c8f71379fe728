"""The run index: a SQLite file with one row for each run. One process of a host writes it, all front ends read it.

rows.py is pure: which rows follow from events; changes.py: what the messages of the log are for it, with the times of
instants.py; file.py writes and reads the file, label_lists.py what it has of labels; follower.py reads the log;
lost_beginnings.py adds runs whose first event is no longer in the log, archived.py notes where archived runs are;
run_index.py answers lists; freshness.py waits until the index has what was written before; counting.py counts for as
long as somebody waits.

Not here: the runs themselves (runs/loading.py). Start reading at rows.py.
"""
