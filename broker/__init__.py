"""The broker: the only folder that imports its client. No type of the client leaves it.

Here: the names of everything that is stored (names.py), the streams and buckets themselves (provisioning.py), the
connection, pipelined publishing, continuous pulling, and on top of those History, Tasks, Bucket and DeadLetters; who
owns which partitions (owners.py) and by which consumers they come (consumers.py); what triggers listen to (triggers.py,
sources.py, captures.py, events.py); what both ways of working share: how a task is read and refused (reception.py),
told (facts.py), paused (pauses.py), leased (leases.py); telemetry and meters; reads at the leader (leader.py).
server.py runs the embedded broker as a child process. Not here: what events mean. Start reading at names.py, then
history.py.
"""
