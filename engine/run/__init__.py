"""Runs: the one function that changes a run, and everything that it depends on.

events.py has past facts and event_payloads.py what they carry, commands.py has orders, state.py has the fold.
advance.py handles every event. control/ has what people order about a run; the kind of a step (kinds/) decides what the
step does with an event, by functions that kinds share: steps.py, dispatch.py, retry.py, inputs.py, timers.py,
deliveries.py. still_due.py says which commands are still to be carried out. workflow.py is a definition in the form
that `advance` uses, and compiling.py makes it.

Not here: clocks, I/O, the form that a user writes (definition/). Start reading at advance.py.
"""
