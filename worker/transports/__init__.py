"""The two ways of a worker to the service: directly through the broker, and over HTTP.

transport.py is what both have in common; direct.py with intake.py is the one, bridge.py with polling.py the other.

Not here: how a task function is called (tasks/). Start reading at transport.py.
"""
