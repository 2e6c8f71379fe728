"""Running triggers: every engine consumes what all of them listen to, and starts runs.

triggers.py keeps consumers running; reconcile.py makes at the broker what a trigger's record says; trigger_events.py
takes what comes; starting.py starts a run of it.

Not here: the verbs on triggers (control/triggers.py), what a filter lets through (engine/trigger). Start reading at
triggers.py.
"""
