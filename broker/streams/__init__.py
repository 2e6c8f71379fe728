"""The streams of the service, each with a small face: what is appended, read, consumed and removed.

provisioning.py has every stream and bucket in one table. history.py is the truth; tasks.py and sticky_tasks.py are the
task queues.

Not here: subjects (names.py), the client (nats/). Start reading at history.py.
"""
