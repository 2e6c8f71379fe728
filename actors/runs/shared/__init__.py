"""What the parts of a shard share: its queues, its lease, its clock, its metrics.

mailbox.py has the events that wait, common_reader.py shares those of one consumer out to all partitions,
snapshot_queue.py has the runs whose snapshot is due, revisions.py a compact set of numbers, lease.py the right to
write, broker_clock.py the broker's time; run_metrics.py counts what happens to runs, spans.py makes traces of it;
upgrade_checks.py has the timer of runs that wait for a newer version. Not here: what is done with any of it. Start
reading at mailbox.py.
"""
