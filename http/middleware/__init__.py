"""What handles every request, whatever its path: authentication, protection from other machines and foreign web pages,
counting, unusual methods and paths.

Not here: what one path needs (resources/). Start reading at auth.py.
"""
