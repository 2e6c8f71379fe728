"""The engine: what a workflow is and what happens to a run, as pure functions over values.

Here: definitions and their validation, the events of a run's history, the commands that follow, and `advance`, the one
function through which every event of every run goes, live and on replay. Beside them what triggers need: cron.py,
trigger.py, occurrences.py, signatures.py. Not here: clocks, I/O, asyncio, logging, the broker. Time, ids and randomness
come in as arguments. Start reading at advance.py, then steps.py, loops.py and approvals.py for what happens to a step;
events.py, commands.py and state.py are what they speak of. definitions.py is what a user registers, workflow.py the
same compiled for `advance`.
"""
