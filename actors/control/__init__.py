"""The control plane: what users ask of runs and triggers. Every verb appends events, none changes state.

verbs.py is about one run; bulk.py and retry.py about many; approvals.py, triggers.py, watch.py and drain.py about what
they are called.

Not here: HTTP (http/), what follows from an event (engine/run). Start reading at verbs.py.
"""
