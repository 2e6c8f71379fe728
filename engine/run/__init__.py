"""Runs: the one function that changes a run, and all that it decides by.

events.py are past facts, commands.py are orders, state.py is the fold. advance.py takes every event; what a step does
with one is decided by its kind (kinds/), with the parts that kinds share: steps.py, dispatch.py, retry.py, inputs.py,
timers.py, pauses.py. workflow.py is a definition as `advance` knows it, compiling.py makes one.

Not here: clocks, I/O, what a user writes (definition/). Start reading at advance.py.
"""
