"""The triggers of a service in memory: what starts runs by itself.

triggers.py has what tests call. firing.py decides which trigger takes what comes, and which run that starts; batches.py
has the events that are to start one run together.

Not here: the rules, which are those of the service (engine/trigger). Start reading at triggers.py.
"""
