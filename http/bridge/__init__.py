"""The worker bridge: workers over HTTP connect, poll for tasks and resolve them.

routes.py has a responder for each path, requests.py and exchange.py read what they are sent, service.py is the bridge
of one process. A poll waits in queues.py and queue.py (byte_budget.py bounds their memory). handout.py makes a lease of
each delivery and starts.py reports that the step has started; leases.py keeps the leases alive, departures.py gives up
those of workers that have left. resolver.py carries out an answer, once, in any process. auth.py checks the token,
connection.py is the heartbeat stream of a connected worker. live/ stores what workers say while they work.

Not here: the worker's side of it (worker/transports/bridge.py). Start reading at routes.py.
"""
