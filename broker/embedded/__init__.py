"""The embedded broker: a nats-server child process, its configuration, its directory, its memory, and its links to
other brokers.

Not here: requests to it (nats/). Start reading at server.py.
"""
