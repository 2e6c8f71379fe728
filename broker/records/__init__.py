"""Documents in key-value buckets: definitions, owners of partitions, leases of polled tasks, registrations of workers,
pauses, signals, API keys, what is said of limits.

Each module has one bucket. Its documents are also in the history, or advisory, or decide by compare-and-swap who acts.

audit.py has entries of the same kind in streams of their own. past_states.py is in memory only.

Not here: streams of events and tasks (streams/). Start reading at definitions.py.
"""
