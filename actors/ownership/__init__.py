"""Ownership: which shards are alive, and which of them owns which partitions of the history.

places.py gives each shard of a machine a locked place; membership.py renews this shard's lease and detects dead shards;
placement.py assigns partitions to places, moves.py plans what a shard does about it, both as pure functions; claims.py
writes who has what; ownership.py takes partitions over and hands them over.

Not here: what an owner does with a partition (runs/). Start reading at placement.py.
"""
