"""Runs: the one function that changes a run, and all that it decides by.

events.py are past facts, commands.py are orders, state.py is the fold. advance.py has the one `match`; steps.py,
dispatch.py, retry.py, inputs.py, timers.py, pauses.py say what follows.

Not here: clocks, I/O, what a user writes (definition/). Start reading at advance.py.
"""
