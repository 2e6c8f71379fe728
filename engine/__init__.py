"""The engine: what a workflow is and what happens to a run, as pure functions over values.

Rooms: definition/ is what a user registers, field by field; run/ has the events of a run's history, the commands that
follow, and `advance`, the one function through which every event of every run goes, live and on replay; trigger/ is
what a user writes about triggers, and which run an event of a trigger starts. validation.py reads a whole definition.
errors.py is the tree of errors of the whole product, formats.py the versions of stored documents, times.py how instants
are written.

Not here: clocks, I/O, asyncio, logging, the broker. Time, ids and randomness come in as arguments. Start reading at
run/advance.py.
"""
