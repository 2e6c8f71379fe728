"""Who may do what: scopes, and the workflows that a key is for.

Not here: how a request shows its key (http/middleware), where keys are stored (broker/records). Start reading at
scopes.py.
"""
