"""Commands for who operates the service: why a run waits, what is wrong with the service, and a live view of it.

explain.py is `penstock run explain`, and has the sentences that other commands show while a run waits (waiting.py).
live.py is `penstock run logs` and `run stream`.

Not here: how tables and times are shown (terminal/). Start reading at explain.py.
"""
