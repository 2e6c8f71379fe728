"""The OpenAPI document of the API, and the page that shows it: made from tables of operations and from the structs
themselves.

document.py assembles the document; definitions.py and schemas.py describe bodies; page.py renders reference.html with
reference.css; reference.py serves both. definition_schema.py is for editors of definitions. Not here: the responders
(resources/). Start reading at table.py.
"""
