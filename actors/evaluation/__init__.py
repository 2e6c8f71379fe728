"""Expressions of a shard, evaluated where they do not hold it up.

evaluator.py evaluates at once what is quick, and has a child process for the rest; process.py is what runs in that
process; messages.py is what the two exchange.

Not here: what an expression is and gives (engine/expressions), which fields of a step are expressions. Start reading at
evaluator.py.
"""
