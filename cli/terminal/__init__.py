"""The terminal: how results are shown, and how people write ids, times, documents and options.

Not here: what a command does (commands/). Start reading at output.py.
"""
