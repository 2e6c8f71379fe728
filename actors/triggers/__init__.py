"""Running triggers: every engine listens for trigger events and starts runs.

trigger_runner.py keeps a consumer for each trigger; reconcile.py creates and removes at the broker what a trigger's
record asks for; trigger_events.py handles one trigger event, batching.py one that shares its run with others;
starting.py starts the run.

Not here: operations on triggers (control/triggers.py), what a filter lets through (engine/trigger). Start reading at
trigger_runner.py.
"""
