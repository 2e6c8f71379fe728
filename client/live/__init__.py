"""What the steps of a run say: log lines and chunks, as far as they go now, or live.

requests.py is what is asked, events.py reads the events of a live stream.

Not here: connections, and how a lost one is resumed (../client.py, ../async_client.py). Start reading at requests.py.
"""
