"""One task of a worker: call its function, in a thread if it is not async, and answer with the outcome.

Not here: where tasks come from and answers go to (../transports). Start reading at executor.py.
"""
