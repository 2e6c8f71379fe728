"""The contents of requests and responses: bodies, fields, parameters, forms, errors, views.

errors.py is the only module with statuses of errors. Every reader names the offender. Not here: what is done with them
(resources/). Start reading at bodies.py.
"""
