"""What workers and the service tell each other, whatever the transport.

broker/worker_messages.py has the tasks and registrations themselves; receiving.py is what every receiver of a task does
first; reports.py are the events that a worker reports.

Not here: the worker's SDK (worker/), the HTTP bridge (http/bridge). Start reading at receiving.py.
"""
