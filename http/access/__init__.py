"""Responders for who may do what: the keys (keys.py), sign-ins (sessions.py), the audit log (audit.py) and what
writes it (audit_trail.py); and which workflow what a path names belongs to (belonging.py).

Not here: how a request shows its key, and what each operation needs (middleware/). Start reading at keys.py.
"""
