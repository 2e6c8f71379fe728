"""The processes of an engine: the supervisor, and what runs in each of its children.

supervisor.py starts, restarts and ends child processes; forked.py is a child that shares the supervisor's memory;
children.py is what they run; storage_guard.py and leaf_watch.py check the broker's storage and its links, and
broker_memory.py has it collect its garbage.

Not here: what a shard does (runs/, ownership/). Start reading at supervisor.py.
"""
