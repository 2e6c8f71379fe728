"""Kinds of steps: one file for each kind, and a table of all.

table.py lists the kinds by the `type` of a step. Each is a `StepKind` (engine/run/workflow.py): it validates and
describes its config, compiles it, orders an execution, handles events and timers, and withdraws what was ordered.

Not here: what every step shares (steps.py, dispatch.py, timers.py). Start reading at normal.py; agent_loop.py extends
it, approval.py shares nothing with it.
"""
