"""The shell around the engine: it takes events, advances runs, performs commands, writes snapshots, acknowledges.

Here: one RunActor a run, its mailbox, the Shard that owns partitions of the history and the actors of their runs,
timers and the broker's clock by which they are due (timers.py, broker_clock.py); which partitions it owns
(ownership.py, on placement.py, membership.py, lease.py, places.py, draining.py); the supervisor that keeps processes
alive, the run index, and `control`, the verbs with which front ends append events; the triggers (triggers.py, then
occurrences.py and settling.py) with their own verbs (trigger_control.py); what is put right now and then (upkeep.py,
strays.py, overdue.py); payloads too large for a state (outputs.py); the verbs for many runs (bulk.py) and for approvals
(approvals.py); what each process counts and reports (tally.py, spans.py, telemetry.py, relay.py). Not here: what an
event means (engine/), how it travels (broker/), HTTP. Start reading at shard.py, then run_actor.py; loading.py says how
a run comes back into memory.
"""
