"""The control plane: what users ask of runs and triggers. A verb appends events; it changes no state itself.

verbs.py acts on one run, bulk.py and retry.py on many; approvals.py lists and decides approvals; triggers.py creates,
fires and deletes triggers; watch.py follows a run until it ends; drain.py takes the partitions from a host.

Not here: HTTP (http/), what follows from an event (engine/run). Start reading at verbs.py.
"""
