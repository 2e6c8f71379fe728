"""What says why a run waits, and what is wrong with the service.

Here: the responders of it, and what only a front end can find out. Not here: the facts and the checks
(actors/diagnosis), the sentences about runs (engine/waiting). Start reading at explanations.py.
"""
