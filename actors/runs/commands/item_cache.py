"""The elements of maps that are being carried out: an array is evaluated and taken apart once, not for each element."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from msgspec import Raw

from penstock.config.limits import MIB

CACHE_BYTES_MAX = 64 * MIB

ItemKey: TypeAlias = tuple[str, str, int]
"""Run, step and attempt of a map."""


class ItemCache:
    """Owned by a shard. What was used longest ago leaves first; it can be worked out again."""

    def __init__(self, most: int = CACHE_BYTES_MAX) -> None:
        self._most, self._bytes = most, 0
        self._found: OrderedDict[ItemKey, tuple[list[Raw], int]] = OrderedDict()

    def get(self, key: ItemKey) -> list[Raw] | None:
        entry = self._found.get(key)
        if entry is None:
            return None
        self._found.move_to_end(key)
        return entry[0]

    def put(self, key: ItemKey, items: list[Raw]) -> None:
        size = sum(memoryview(item).nbytes for item in items) + 100 * len(items)
        self._found[key] = items, size
        self._bytes += size
        while self._bytes > self._most and len(self._found) > 1:
            _, (_, freed) = self._found.popitem(last=False)
            self._bytes -= freed
