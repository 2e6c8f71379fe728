"""The part of the client for limits: who holds their slots and who waits, and how much they allow.

views.py has the bodies of the responses, requests.py the requests. Not here: the limits in a definition. Start reading
at requests.py.
"""
