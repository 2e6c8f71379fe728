"""The service in memory: what lies around the engine's `advance`, in one process, on a clock that stands still until it
is moved.

engine.py has the loop, and what is kept of each run: an event is folded, the commands that follow are performed.
performing.py has the commands, payloads.py how payloads are read from a history. catalog.py has the definitions,
tasks.py the queued tasks and what workers report. calling.py calls task functions, blocking.py those that go on for a
while, on the loop of virtual_loop.py and with the context of contexts.py; outcomes.py has what becomes of a call.
script.py says which of them fail, or take long. waits.py has waits for events, limits.py limits, timeline.py the time.

Not here: what a test calls (../service.py, ../run.py). Start reading at engine.py.
"""
