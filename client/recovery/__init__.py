"""Requests about runs that have gone wrong: reruns, and what an operator does about one step.

views.py is what is answered. Not here: a run that is cancelled (client/requests.py). Start reading at requests.py.
"""
