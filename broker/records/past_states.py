"""States of runs, in memory: of long ones as they once were, for who moves through their history folds what lies
between; and of those that have ended, for lists that are asked for again and again have the same ones."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from operator import attrgetter

from msgspec import Struct

from penstock.broker.nats.leader import Stored
from penstock.config.limits import MIB
from penstock.engine.run.state import Run

PAST_STATES_BYTES_MAX = 16 * MIB
EVENTS_APART = 500  # fewer are folded faster than they are worth remembering
EVENT_BYTES = 256  # what a state keeps of an event beside its payload, roughly
ENDED_MAX = 1000
ENDED_BYTES_MAX = 4 * MIB  # of the events that carry their states

_seq = attrgetter("seq")


class PastState(Struct, frozen=True):
    """The run after the event `seq`, stored at `at` (s since the epoch), all of whose `events` have `size` bytes."""

    seq: int
    at: float
    run: Run
    events: int
    size: int


class PastStates:
    """Owned by a Store. The states of a run share most of what they hold, so they are counted, and leave, together:
    those of the run that was asked for longest ago first."""

    def __init__(self, most: int = PAST_STATES_BYTES_MAX) -> None:
        self._most, self._bytes = most, 0
        self._of: OrderedDict[str, list[PastState]] = OrderedDict()

    def newest(self, run_id: str, seq: int) -> PastState | None:
        """The newest state up to this sequence. Whether the event is still in the log is not known."""
        states = self._of.get(run_id, [])
        if states:
            self._of.move_to_end(run_id)
        place = bisect_right(states, seq, key=_seq)
        return states[place - 1] if place else None

    def keep(self, state: PastState) -> None:
        """Keep a state that is newer by many events than all those of its run, if there is room for it."""
        states = self._of.get(state.run.run_id, [])
        size, before = _size(state), _size(states[-1]) if states else 0
        apart = state.events - (states[-1].events if states else 0)
        if apart < EVENTS_APART or size > self._most:
            return
        self._of[state.run.run_id] = [*states, state]
        self._of.move_to_end(state.run.run_id)
        self._bytes += size - before
        while self._bytes > self._most:
            self.forget(next(iter(self._of)))

    def forget(self, run_id: str) -> None:
        """Drop all states of a run."""
        states = self._of.pop(run_id, [])
        self._bytes -= _size(states[-1]) if states else 0


def _size(state: PastState) -> int:
    """What this state and all those before it may hold in memory, roughly, in bytes."""
    return state.size + EVENT_BYTES * state.events


class EndedRuns:
    """Owned by a Store. Runs that have ended, by the event that was their end; those that were kept first go first."""

    def __init__(self, most: int = ENDED_MAX, most_bytes: int = ENDED_BYTES_MAX) -> None:
        self._most, self._most_bytes, self._bytes = most, most_bytes, 0
        self._of: dict[int, tuple[Stored, Run]] = {}

    def get(self, last: Stored) -> Run | None:
        """The run whose last event this is."""
        found = self._of.get(last.seq)
        if found is None:
            return None
        kept, run = found  # some headers are the broker's own; one that has lost its end uses sequences again
        return run if (kept.at, kept.subject, kept.data) == (last.at, last.subject, last.data) else None

    def keep(self, last: Stored, run: Run) -> None:
        self._forget(last.seq)
        self._of[last.seq] = last, run
        self._bytes += _bytes_of(last)
        while len(self._of) > self._most or self._bytes > self._most_bytes:
            self._forget(next(iter(self._of)))

    def _forget(self, seq: int) -> None:
        found = self._of.pop(seq, None)
        if found is not None:
            self._bytes -= _bytes_of(found[0])


def _bytes_of(stored: Stored) -> int:
    return len(stored.data) + len(stored.headers)
