"""The streams of the service, with a class for each: what is appended, read, consumed and removed.

provisioning.py has every stream and bucket in one table. history.py has the truth about runs; tasks.py and
sticky_tasks.py have the task queues.

Not here: subjects (names.py), the client (nats/). Start reading at history.py.
"""
