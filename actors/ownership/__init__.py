"""Ownership: which shards are alive, and which of them owns which partitions of the history.

membership.py tells and hears who is alive; placement.py says who shall own what, as a pure function; ownership.py makes
it so.

Not here: what an owner does with a partition (runs/). Start reading at placement.py.
"""
