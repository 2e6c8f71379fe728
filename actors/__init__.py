"""The actors: they read events from the history, advance runs, carry out commands, write snapshots and acknowledge.

Rooms: runs/ has the shard and one actor for each run; ownership/ decides which shard owns which partitions; control/
has the operations by which front ends change runs and triggers; triggers/ starts runs on trigger events; index/ is the
SQLite file that answers lists of runs; maintenance/ removes what has ended and finds what is lost; telemetry/ publishes
numbers, warnings and spans; processes/ has the supervisor and what runs in its children.

Not here: what an event means (engine/run), how it travels (broker/), HTTP (http/). Start reading at runs/shard.py, then
runs/run_actor.py.
"""
