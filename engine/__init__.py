"""The engine: what a workflow is and what happens to a run, as pure functions over values.

Rooms: definition/ reads what a user registers, field by field; run/ has the events of a run's history, the commands
that follow, and `advance`, the one function that handles every event of every run, live and on replay; trigger/ reads
what a user writes about triggers, and decides which run a trigger event starts; access/ says who may do what.
validation.py reads a whole definition.
errors.py has the errors of the whole product, formats.py the versions of stored documents, times.py the text form of
instants.

Not here: clocks, I/O, asyncio, logging, the broker. Time, ids and randomness are arguments. Start reading at
run/advance.py.
"""
