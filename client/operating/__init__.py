"""The part of the client for who operates the service: why runs wait, and what is wrong with the service.

views.py has the bodies of the responses, requests.py the requests. Not here: everything about definitions, runs and
triggers. Start reading at requests.py.
"""
