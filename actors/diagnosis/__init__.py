"""What keeps runs, and the service, from going on: facts for people, read from the broker when they are asked for.

`explanation.py` answers why one run waits: it reads what the run's state and its executions need (live_facts.py), and
the engine's pure `explain` makes sentences of it. `registrations.py` are the workers as they describe themselves.

Not here: operations that change anything (actors/control), and the sentences (engine/waiting). Start reading at
`explanation`.
"""
