"""What scripts/chaos.py is made of: a service and its workers that die and freeze all the time, load on it, and a
checker.

Here: what is done (plan.py), to which processes (places.py, installation.py), and the doing (faults.py,
store_filler.py, full_disk.py); the load (workflows.py, kind_workflows.py, limited_workflows.py, worker.py, target.py,
users.py, following.py, operators.py, pruning.py, importing.py, over api.py) and what it was promised (ledger.py,
executions.py); what is there afterwards (gathering.py, said.py), also in the service out of a backup (backups.py,
restored.py, calm.py); and the checker, which is pure: what a history means (account.py, step_account.py,
step_events.py, fragments.py, compensation.py, deadlines.py, pausing.py, slots.py, by_hand.py, taking.py,
conditions.py), what the log of a limit says (limit_story.py), what executions are given (given.py), what it looks at
(evidence.py), and what must be true (promises.py, operations.py, histories.py, children.py, waits.py, limits.py,
states.py, checker.py). report.py says what came of it. Not here: anything that the service itself needs. Start reading
at storm.py, or for what is checked at checker.py.
"""
