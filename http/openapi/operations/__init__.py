"""The operations of the HTTP API, one row each, one file for each tag.

operation.py says what a row holds; parameters.py has what several rows share. Not here: bodies (../schemas.py), texts
(../texts.py). Start reading at operation.py.
"""
