"""The bytes between a client and the broker: commands.py makes messages to write, parser.py takes apart what is read,
transport.py is the connection that passes it on at once.

Not here: what a connection is used for. Start reading at parser.py.
"""
