"""Requests about recorded runs: two compared, the graph of one, one as a file.

Not here: a run and its events (client/requests.py). Start reading at requests.py.
"""
