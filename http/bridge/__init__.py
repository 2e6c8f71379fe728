"""The worker bridge: workers over HTTP connect, poll for tasks and resolve them.

routes.py has the paths; queues.py and queue.py wait for tasks on behalf of polls; handing.py makes a lease of a
delivery; resolving.py carries out an answer, once, in any process.

Not here: the worker's side of it (worker/transports/bridge.py). Start reading at routes.py.
"""
