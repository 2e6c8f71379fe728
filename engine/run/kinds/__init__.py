"""Kinds of steps: one file a kind, and the table of them all.

table.py lists the kinds by the `type` of a step. Each is a `StepKind` (engine/run/workflow.py): it validates and
describes its config, compiles it, orders an execution, takes events and timers, and withdraws what is out.

Not here: what every step shares (steps.py, dispatch.py, timers.py). Start reading at normal.py; agent_loop.py adds to
it, approval.py shares nothing with it.
"""
