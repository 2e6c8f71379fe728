"""Documents in key-value buckets: definitions, owners of partitions, leases of polled tasks, registrations of workers,
pauses, signals.

Each module is a small face over one bucket. What it keeps is either in the history too, or advisory, or decides by
compare-and-swap who acts.

Not here: streams of events and tasks (streams/). Start reading at definitions.py.
"""
