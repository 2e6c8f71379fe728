"""What is said of limits: definitions register them, and people override them for a time.

configuring.py has both. Not here: who gets a slot, and who owns a limit (actors/runs/limits).
Start reading at configuring.py.
"""
