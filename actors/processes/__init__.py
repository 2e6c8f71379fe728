"""The processes of an engine: the supervisor, and what runs in each of its children.

Not here: what a shard does (runs/, ownership/). Start reading at supervisor.py.
"""
