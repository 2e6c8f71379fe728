"""The resources of the API: one file a path. A responder reads, decodes, calls, replies.

Not here: the worker bridge (bridge/), the operator's pages (system/), what requests may hold (messages/). Start reading
at runs.py.
"""
