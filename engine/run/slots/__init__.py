"""Slots of limits that a run and its executions take: the run's side of engine/limits.

`plans.py` has the limits of a step or workflow, compiled; `holding.py` holds an execution back until it has all its
slots and gives them back when it is over; `starting.py` does the same for the run as a whole. `named.py`
says which limits a definition names, `requesting.py` makes the request.

Not here: who gets a slot (engine/limits). Start reading at `holding.py`.
"""
