"""What workers and the service send each other, over both transports.

broker/worker_messages.py has the tasks and registrations themselves; receiving.py has what every receiver of a task
does first; reports.py has the events that a worker reports. bridge_messages.py has the JSON bodies of the worker
bridge; registrations.py and signals.py have what else workers store.

Not here: the worker's SDK (worker/), the HTTP bridge (http/bridge). Start reading at receiving.py.
"""
