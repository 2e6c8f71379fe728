"""The commands of `penstock`: one file a group. A command parses, calls the client, prints.

Not here: how things are shown and read (terminal/). Start reading at run.py.
"""
