"""What a run says while it goes on: its events, and the log lines and chunks of its steps, as far as they go now, or
live.

requests.py is what is asked, events.py reads the events of a live stream; blocking.py and asynchronous.py follow a
stream for the two clients, and resume one that broke.

Not here: connections (../connection.py, ../async_connection.py), and how often one is made again
(../sending/following.py). Start reading at requests.py.
"""
