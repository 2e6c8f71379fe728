"""One task of a worker: call its function, in a thread if it is not async, and report the outcome.

Not here: where tasks come from and reports go to (../transports). Start reading at executor.py.
"""
