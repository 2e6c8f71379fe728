"""The log of limits, and questions about them to the shards that own them.

limit_log.py has the stream of all limits: what is asked of them, and what their owners decide. questions.py has what
owners answer when somebody wants to see a limit.

Not here: what a record means (engine/limits), who decides (actors/runs/limits). Start reading at limit_log.py.
"""
