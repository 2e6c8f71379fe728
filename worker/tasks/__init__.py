"""One task in a worker's hands: its function is called, in a thread if need be, and what becomes of it is told.

Not here: where tasks come from and answers go to (transports/). Start reading at execution.py.
"""
