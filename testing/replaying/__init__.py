"""Replays: a run of production, from its export, once more, with the definition and the functions of today.

recording.py reads an export and knows what came from outside: outcomes of workers, events, decisions, ends of children.
tasks.py and performing.py put that in the place of workers and other runs; replay.py has `replay`, and differences.py
what a replay finds.

Not here: the service in memory that a replay runs in (../memory). Start reading at replay.py.
"""
