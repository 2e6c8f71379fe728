"""The embedded broker: a nats-server child process, its configuration, its directory, and its links to other brokers.

Not here: requests to it (nats/). Start reading at server.py.
"""
