"""Placement: which place shall own which partitions. A pure function, so all shards compute the same result."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

from penstock.config.limits import PARTITIONS


def placed(places: Collection[str]) -> dict[str, frozenset[int]]:
    """The partitions of each place: each partition has exactly one place, and the shares differ by one at most.

    Rendezvous hashing: each place has a score for each partition, and the highest one with room gets it. When
    places come and go, few other partitions move.
    """
    least, larger = divmod(PARTITIONS, max(1, len(places)))
    found: dict[str, set[int]] = {place: set() for place in places}
    left = set(range(PARTITIONS))
    for _, place, number in sorted(
        ((_score(place, number), place, number) for place in found for number in left), reverse=True
    ):
        mine = found[place]
        if number not in left or len(mine) > least or (len(mine) == least and not larger):
            continue
        larger -= len(mine) == least
        mine.add(number)
        left.discard(number)
    return {place: frozenset(numbers) for place, numbers in found.items()}


def _score(place: str, number: int) -> bytes:
    return blake2b(f"{place}.{number}".encode(), digest_size=8).digest()
