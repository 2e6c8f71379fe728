"""The OpenAPI document of the API, and the page that shows it: made of one table of operations and of the structs
themselves.

Not here: the responders (resources/). Start reading at table.py.
"""
