"""Runs whose state is ahead of their snapshot, in the order in which they got ahead."""

from __future__ import annotations

import time


class SnapshotQueue:
    """Owned by a shard. A run is in it at most once."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def add(self, run_id: str) -> None:
        """The run's state is ahead of its snapshot, from now on or for longer."""
        self._since.setdefault(run_id, time.monotonic())

    def remove(self, run_id: str) -> bool:
        """Whether the run was in the queue."""
        return self._since.pop(run_id, None) is not None

    def pop_older_than(self, before: float) -> list[str]:
        """Remove and return the runs that have been ahead since before this monotonic time."""
        due = []
        for run_id, since in self._since.items():
            if since >= before:
                break  # in the order of their age
            due.append(run_id)
        for run_id in due:
            del self._since[run_id]
        return due
