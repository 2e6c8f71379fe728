"""A run as an object: what `Client.run` and `AsyncClient.run` return.

starting.py is what both need: the run's name, input and idempotency key, the requests, and what an answer means;
blocking.py is `RunHandle`, asynchronous.py `AsyncRunHandle`.

Not here: streams and how they are resumed (../live). Start reading at starting.py.
"""
