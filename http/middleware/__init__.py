"""What every request passes, whatever its path: authentication, protection from strangers and foreign web pages,
counting, odd methods and paths.

Not here: what one path needs (resources/). Start reading at auth.py.
"""
