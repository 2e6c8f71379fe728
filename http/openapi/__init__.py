"""The OpenAPI document of the API, and the page that shows it: made of tables of operations and of the structs
themselves.

document.py puts the document together; definitions.py and schemas.py describe bodies; page.py renders reference.html
with reference.css; reference.py answers both. Not here: the responders (resources/). Start reading at table.py.
"""
