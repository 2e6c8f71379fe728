"""The ids of runs: 32 lowercase hexadecimal characters.

The broker keeps its subjects in a tree of their characters, in memory. Ids that differ at their ends only share all but
the last node of it: a run takes half as much there as with an id that is random from its time on. So a process gives
the ids of a short time one after the other, from a random one on (a UUID version 7, RFC 9562 section 6.2, method 2).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from hashlib import sha256
from itertools import count

from uuid_utils import uuid7

TICK_S = 0.25  # half of the time by which a scheduled run differs from one that starts at once


class RunIds:
    """Owned by a process. Any thread may call `new`."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin with a random id: in a copy of a process, the next ones are those of the original."""
        self._tick: tuple[float, Iterator[int]] = (0.0, iter(()))

    def new(self) -> str:
        """An id that no other run has. It begins with the time, at most TICK_S ago, in ms since the epoch."""
        now, (begun, ids) = time.time(), self._tick
        if not begun <= now < begun + TICK_S:
            ids = count(uuid7().int)
            self._tick = now, ids
        return f"{next(ids):032x}"


RUN_IDS = RunIds()
os.register_at_fork(after_in_child=RUN_IDS.restart)

new_run_id = RUN_IDS.new


def keyed_run_id(workflow: str, key: str) -> str:
    """The id of the run that belongs to an idempotency key, always the same."""
    return sha256(f"{workflow}\n{key}".encode()).hexdigest()[:32]


def made_at(run_id: str) -> float:
    """When `new_run_id` has made this id, or began to make those before it, in s since the epoch."""
    return int(run_id[:12], 16) / 1000
