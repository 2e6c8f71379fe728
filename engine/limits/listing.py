"""What people see of a limit: who waits at which place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import nsmallest

from msgspec import Struct

from penstock.engine.limits.state import LimitState
from penstock.engine.limits.waiting import FAIR, HOLDER, ORDER, PRIORITY, STEP, Entry, run_id_of


class Waiter(Struct, frozen=True):
    """Who waits. `place` 1 is served next; `order` is the sequence of the request."""

    place: int
    holder: str
    run_id: str
    step_id: str | None
    priority: int
    fair: str | None
    order: int


def place(state: LimitState, holder: str) -> int | None:
    """The place of `holder` among those that wait, from 1; None if it does not wait. Later requests may come first by
    priority or turn. O(waiting)."""
    entry = state.waiting.entries.get(holder)
    if entry is None:
        return None
    mine, waiting = entry[FAIR], state.waiting.entries.values()
    rounds = sum([other < entry for other in waiting if other[FAIR] == mine])
    others = Counter([other[FAIR] for other in waiting if other[FAIR] != mine])
    turn = _turn_of(mine, state.turn)
    return 1 + rounds + sum(min(count, rounds + (_turn_of(fair, state.turn) < turn)) for fair, count in others.items())


def first_waiting(state: LimitState, count: int) -> list[Waiter]:
    """The first `count` that wait, in the order in which they are served as long as nobody else comes."""
    queues: dict[str, list[Entry]] = {}
    for entry in state.waiting.entries.values():
        queues.setdefault(entry[FAIR], []).append(entry)
    heads = {fair: iter(nsmallest(count, queue)) for fair, queue in queues.items()}
    ring = sorted(heads, key=lambda fair: _turn_of(fair, state.turn))
    served: list[Entry] = []
    while ring and len(served) < count:
        ring = _one_round(ring, heads, served)
    return [_waiter(place, entry) for place, entry in enumerate(served[:count], 1)]


def _one_round(ring: list[str], heads: dict[str, Iterator[Entry]], served: list[Entry]) -> list[str]:
    """One of each value is served. Returns the values that had one."""
    rest = []
    for fair in ring:
        entry = next(heads[fair], None)
        if entry is not None:
            served.append(entry)
            rest.append(fair)
    return rest


def _turn_of(fair: str, turn: str) -> tuple[bool, str]:
    """Sorts values by when their turn comes, if `turn` was served last."""
    return fair <= turn, fair


def _waiter(place: int, entry: Entry) -> Waiter:
    return Waiter(
        place, entry[HOLDER], run_id_of(entry), entry[STEP], -entry[PRIORITY], entry[FAIR] or None, entry[ORDER]
    )
