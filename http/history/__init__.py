"""Runs as they are recorded: two of them compared, the graph of one, one as a file, out and in.

Not here: a run as it was earlier (resources/runs.py, actors/runs/loading.py), its events (resources/events.py). Start
reading at diff.py.
"""
