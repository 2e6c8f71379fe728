"""The broker itself: one connection, and the ways to publish, read and consume fast and safely.

connection.py translates every error; publisher.py pipelines, batch.py stores all or none; pull.py, tail.py and
direct.py read; leader.py makes a read return everything that was acknowledged; buckets.py has key-value buckets. The
bytes of the protocol are in wire/.

Not here: the streams, subjects and messages of the service. Start reading at connection.py.
"""
