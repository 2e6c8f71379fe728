"""What an operator does about runs that have gone wrong: a rerun, from a step or from the beginning; the next attempt
of a step now; a step completed by hand; many runs paused, or let go on; runs removed that have ended.

Not here: retries of whole runs (resources/retry.py, resources/bulk.py). Start reading at rerun.py.
"""
