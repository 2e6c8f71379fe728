"""What requests may hold and answers look like: bodies, fields, parameters, forms, errors, views.

errors.py is the only place that knows statuses. Every reader names the offender.

Not here: what is done with them (resources/). Start reading at bodies.py.
"""
