"""What steps say while they run: log lines, chunks, progress.

lines.py and chunks.py are the messages and their limits, allowance.py is how much one execution may say. said.py stores
the messages of one kind and reads them back, following.py follows those of a run as they are stored; progress_board.py
keeps the latest progress (progress.py) of each step.

Not here: how a worker gathers what its functions say (worker/live), who reads it (http/live). Start reading
at lines.py.
"""
