"""What people order about a run that has begun: a run that has failed goes on (resuming.py), a run is paused and goes
on later (pausing.py).

Not here: cancellation, which ends a run (engine/run/execution/ending.py), requests and their answers (actors/control).
Start reading at pausing.py.
"""
