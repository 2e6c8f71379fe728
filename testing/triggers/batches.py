"""Open batches of triggers in memory: events that are to start one run together. Which events belong together, and when
a batch ends, is decided by the same functions as in the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.engine.trigger.batching import Batching, BatchState, Debounce, due_at, extended, is_full, key_text
from penstock.engine.trigger.trigger import Trigger
from penstock.engine.trigger.trigger_events import as_json
from penstock.testing.memory.timeline import DueAction, Timeline


class TriggerEvent(NamedTuple):
    """What came for triggers at `at` (s since the epoch); `headers` are what a run shows of a webhook's."""

    seq: int
    at: float
    subject: str
    body: bytes
    event_id: str | None = None
    headers: Mapping[str, str] = {}


class BatchInMemory:
    """Owned by BatchesInMemory."""

    __slots__ = ("events", "planned", "since", "state")

    def __init__(self, since: float) -> None:
        self.since = since
        self.events: list[TriggerEvent] = []
        self.state: BatchState | None = None
        self.planned: DueAction | None = None


StartsRun = Callable[[Trigger, Batching, BatchInMemory], None]


class BatchesInMemory:
    """Owned by the triggers in memory. `start` starts the run of a batch that has ended."""

    def __init__(self, timeline: Timeline, start: StartsRun) -> None:
        self._timeline, self._start = timeline, start
        self._open: dict[tuple[str, str], BatchInMemory] = {}

    def take_up(self, trigger: Trigger, batching: Batching, event: TriggerEvent) -> None:
        """Put an event into its batch, which may end with it. Raises Invalid and TooLarge for one that cannot be in
        any."""
        body = bytes(as_json(event.body))
        key = trigger.name, key_text(batching, as_json(event.body))
        batch = self._open.get(key)
        if batch is not None and batch.state is not None and is_full(batching, batch.state, len(body)):
            self._end(trigger, batching, key)
            batch = None
        former = None if batch is None else batch.state
        state = extended(batching, former, 0.0, seq=event.seq, size=len(body), at=event.at)
        if batch is None:
            batch = self._open[key] = BatchInMemory(event.at)
        batch.state = state
        kept = event._replace(body=body)
        batch.events = [kept] if isinstance(batching, Debounce) else [*batch.events, kept]
        if is_full(batching, state):
            self._end(trigger, batching, key)
            return
        if batch.planned is not None:
            batch.planned.drop()
        due = due_at(batching, batch.since, event.at)
        batch.planned = self._timeline.at(due, lambda: self._end(trigger, batching, key))

    def drop(self, trigger: str) -> None:
        """Drop what waits for a trigger that is gone, or has another source."""
        for key in [key for key in self._open if key[0] == trigger]:
            self._close(key)

    def _end(self, trigger: Trigger, batching: Batching, key: tuple[str, str]) -> None:
        self._start(trigger, batching, self._close(key))

    def _close(self, key: tuple[str, str]) -> BatchInMemory:
        batch = self._open.pop(key)
        if batch.planned is not None:
            batch.planned.drop()
        return batch
