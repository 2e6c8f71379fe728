"""What workers and the service tell each other, whatever the transport.

messages.py are tasks and registrations; receiving.py is what every receiver of a task does first; reports.py are the
events that a worker reports.

Not here: the worker's SDK (worker/), the HTTP bridge (http/bridge). Start reading at messages.py.
"""
