"""Kinds of steps: one file for each kind, and a table of all.

table.py lists the kinds by the `type` of a step. Each is a `StepKind` (engine/run/workflow.py): it validates and
describes its config, compiles it, orders an execution, handles events and timers, and withdraws what was ordered.

base.py has what most of them share. normal.py is a task for a worker, agent_loop.py extends it, map.py has one for each
element of an array. approval.py, sleep.py and respond.py have no worker. correlation.py is for wait_for_event.py.

Not here: what happens to every execution of a step (engine/run/execution). Start reading at normal.py.
"""
