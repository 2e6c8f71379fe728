"""Reads of the broker's own state for people: how far queues and consumers are, and what they hold.

Not here: anything that the service needs for its work (streams/, records/). Nothing here changes anything. Start
reading at `queue_progress` in queue_places.py.
"""
