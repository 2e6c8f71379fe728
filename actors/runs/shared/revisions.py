"""A set of many numbers that live for long, in 8 bytes each.

As objects, made one by one while the runs of a burst were in memory, they kept 40 MB of it in use for 100,000 runs: an
arena of the interpreter is returned when its last object is gone.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator, MutableSet


class Revisions(MutableSet[int]):
    """Revisions of snapshots, from 0 to 2^64 - 1. Adding the highest one is cheap, any other moves those above it."""

    __slots__ = ("_ascending",)

    def __init__(self) -> None:
        self._ascending = array("Q")

    def __len__(self) -> int:
        return len(self._ascending)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ascending)

    def __contains__(self, revision: object) -> bool:
        return isinstance(revision, int) and self._is_at(self._place(revision), revision)

    def add(self, revision: int) -> None:
        if not self._is_at(self._place(revision), revision):
            insort(self._ascending, revision)

    def discard(self, revision: int) -> None:
        place = self._place(revision)
        if self._is_at(place, revision):
            del self._ascending[place]

    def clear(self) -> None:
        del self._ascending[:]

    def _place(self, revision: int) -> int:
        return bisect_left(self._ascending, revision)

    def _is_at(self, place: int, revision: int) -> bool:
        return place < len(self._ascending) and self._ascending[place] == revision
