"""Graphs as text: steps as boxes in layers, and the same graph in the languages of other tools.

drawing.py draws in a terminal, as boxes (boxes.py over layout.py) or, where these would be too wide, as one line for
each step (rows.py); exports.py writes Mermaid and DOT. All of it is pure: steps in, text out.

Not here: which steps there are, and what they are called (commands/). Start reading at drawing.py.
"""
