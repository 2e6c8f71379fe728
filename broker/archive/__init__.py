"""The archive: runs that ended long ago, each as one compressed message, and how they are read as before.

archived_runs.py has the form of such a message, and of the marks that lead to it from a history; dictionary.py what the
compression starts from; archive.py stores, finds and removes; whole_histories.py reads a run wherever its events are.

Not here: which runs are archived, and when (actors/maintenance/archiving.py), and where each one is
(actors/index/archived.py). Start reading at archived_runs.py.
"""
