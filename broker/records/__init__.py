"""Documents in key-value buckets: definitions, owners of partitions, leases of polled tasks, registrations of workers,
pauses, signals.

Each module has one bucket. Its documents are also in the history, or advisory, or decide by compare-and-swap who acts.

Not here: streams of events and tasks (streams/). Start reading at definitions.py.
"""
