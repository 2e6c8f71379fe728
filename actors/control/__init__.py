"""The control plane: operations on runs and triggers. An operation appends events; it changes no state itself.

run_operations.py acts on one run, bulk.py and retry.py on many; approvals.py lists and decides approvals; triggers.py
creates, fires and deletes triggers; watch.py follows a run until it ends; drain.py moves the partitions off a host.

Not here: HTTP (http/), what follows from an event (engine/run). Start reading at run_operations.py.
"""
