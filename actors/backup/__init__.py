"""Backup and restore of everything that the service stores, while it runs.

contents.py says what is copied and in which order, manifest.py describes a backup, taking.py makes one and restoring.py
makes streams of one; tasks_out.py hands out again what workers had in hand, slots_held.py gives the slots of limits to
who held them. Not here: how the broker copies one stream (broker/nats/stream_copies.py), the commands (cli/recovery).
Start reading at contents.py.
"""
