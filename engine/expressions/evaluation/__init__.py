"""The values of expressions: plan.py makes a function of each node of a tree, macros.py of each macro.

state.py has what one evaluation may still do, values.py what it reads, failures.py why it may give nothing.
operators.py, functions.py, comparing.py, instants.py and patterns.py are the language's standard library. results.py
writes a value as JSON or text; load.py guesses how long an evaluation may take.

Not here: the text of expressions. Start reading at plan.py.
"""
