"""Who waits for a limit, and whose turn it is: by turns between fair values, then by priority, then by arrival."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from operator import itemgetter
from sys import intern
from typing import Final, TypeAlias

from penstock.engine.limits.records import Requested, WaitingRequest

# (-priority, order, holder, run id or how much of `holder` it is, step id, fair value, sequence of its record,
# how many limits the run asks after this one).
# A plain tuple: 100,000 of them wait, and tuples are ordered as they are served.
Entry: TypeAlias = tuple[int, int, str, "str | int", "str | None", str, int, int]

PRIORITY: Final = 0
ORDER: Final = 1
HOLDER: Final = 2
RUN: Final = 3
STEP: Final = 4
FAIR: Final = 5
POSITION: Final = 6
MORE: Final = 7
STALE_MAX = 64


class WaitingLine:
    """All who wait for one limit. `entries` has them by holder.

    `queues` has a heap for each fair value ("" for none), `ring` the sorted values that have one. A heap may contain
    entries that do not wait any more: only those that `entries` has are valid. What `pick` has taken out of the heaps
    still waits until it is removed, and the next `pick` puts it back if it was not.
    """

    __slots__ = ("_picked", "_queued", "entries", "queues", "ring")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.queues: dict[str, list[Entry]] = {}
        self.ring: list[str] = []
        self._picked: list[Entry] = []
        self._queued = 0

    def add(self, request: Requested | WaitingRequest, order: int, seq: int) -> None:
        """`order` decides who comes first; `seq` is where the record is."""
        holder, run_id, step_id = request.holder, request.run_id, request.step_id
        entry: Entry = (
            -request.priority,
            order,
            holder,
            len(run_id) if holder.startswith(run_id) else run_id,
            None if step_id is None else intern(step_id),
            intern(request.fair) if request.fair else "",
            seq,
            request.more,
        )
        self.entries[holder] = entry
        self._push(entry)

    def write_again(self, waiting: WaitingRequest, seq: int) -> None:
        """It waits, and stands in the log again, at `seq`."""
        self.add(waiting, waiting.order, seq)
        self._tidy()

    def remove(self, holder: str) -> bool:
        """False: it did not wait."""
        if self.entries.pop(holder, None) is None:
            return False
        self._tidy()
        return True

    def pick(self, count: int, turn: str) -> tuple[list[Entry], str]:
        """The next `count` in the order in which they are served, and the fair value that was served last.

        `turn` is the one that was served last before.
        """
        self._put_back()
        ring, entries, queues, picked = self.ring, self.entries, self.queues, self._picked
        while len(picked) < count and ring:
            at = bisect_right(ring, turn) if len(ring) > 1 else 0
            fair = ring[at if at < len(ring) else 0]
            queue = queues[fair]
            while queue:
                entry = heappop(queue)
                self._queued -= 1
                if entries.get(entry[HOLDER]) is entry:
                    picked.append(entry)
                    turn = fair
                    break
            if not queue:
                self._remove_queue(fair)
        return picked.copy(), turn

    def _put_back(self) -> None:
        picked, self._picked = self._picked, []
        for entry in picked:
            if self.entries.get(entry[HOLDER]) is entry:
                self._push(entry)

    def _push(self, entry: Entry) -> None:
        fair = entry[FAIR]
        queue = self.queues.get(fair)
        if queue is None:
            self.queues[fair] = [entry]
            self.ring.insert(bisect_left(self.ring, fair), fair)
        else:
            heappush(queue, entry)
        self._queued += 1

    def _remove_queue(self, fair: str) -> None:
        del self.queues[fair]
        del self.ring[bisect_left(self.ring, fair)]

    def _tidy(self) -> None:
        if self._queued > 2 * len(self.entries) + STALE_MAX:
            self._rebuild()

    def _rebuild(self) -> None:
        """Without what waits no more. O(waiting), after as many removals."""
        self._picked = []
        self.queues = {}
        for entry in self.entries.values():
            self.queues.setdefault(entry[FAIR], []).append(entry)
        for queue in self.queues.values():
            heapify(queue)
        self.ring = sorted(self.queues)
        self._queued = len(self.entries)


def run_id_of(entry: Entry) -> str:
    run = entry[RUN]
    return entry[HOLDER][:run] if isinstance(run, int) else run


def by_arrival(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The oldest first."""
    return iter(sorted(entries, key=itemgetter(ORDER)))
