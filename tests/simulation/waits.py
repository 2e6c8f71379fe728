"""Which event a wait must end with: told from the stream of events, by rules of its own, as retelling.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from penstock.broker import names
from penstock.engine.definition.durations import parse
from tests.simulation.streams import Message, Stream

ROUNDED_S = 0.001  # times in events are texts with microseconds


class Wait(NamedTuple):
    """From when on events count, and until when (None: for ever); those that have completed steps before do not."""

    event: str
    since: float
    until: float | None
    own_id: str | None
    x: int | None
    passed: frozenset[int]


class Waits:
    """Those of one run."""

    def __init__(self, events: Stream) -> None:
        self._events = events
        self._waits: dict[str, Wait] = {}
        self.completed: dict[str, int] = {}

    def begun(self, step_id: str, config: dict[str, Any], ready_at: float, run_id: str, before: set[str]) -> Wait:
        """A step waits that could begin at that time. In a resumed run it waits for what it has waited for before."""
        former = self._waits.get(step_id)
        since = ready_at - parse(config["lookback"]) if "lookback" in config else ready_at
        wait = self._waits[step_id] = Wait(
            config["event"],
            since if former is None else former.since,
            ready_at + parse(config["timeout"]) if "timeout" in config else None,
            run_id if "correlate" in config else None,
            int(config["match"][-1]) if "match" in config else None,
            frozenset(seq for one, seq in self.completed.items() if one in before),
        )
        return wait

    def first(self, step_id: str) -> int | None:
        """The sequence of the first event that surely counts, and is stored."""
        found = self._matching(self._waits[step_id], -ROUNDED_S)
        return next((message.seq for message in found), None)

    def problem_with(self, step_id: str, seq: int, body: bytes) -> str | None:
        """Why the wait must not end with this event."""
        wait = self._waits[step_id]
        found = {message.seq: message for message in self._matching(wait, ROUNDED_S)}
        if seq not in found or orjson.loads(found[seq].data) != orjson.loads(body):
            return f"{step_id} was ended by event {seq}, which does not count for it"
        first = self.first(step_id)
        return None if first is None or seq <= first else f"{step_id} was ended by event {seq}, and {first} came before"

    def _matching(self, wait: Wait, more_s: float) -> Iterator[Message]:
        """The events that count, by times with so much at both ends."""
        for message in self._events.matching(names.event_subject(wait.event)):
            in_time = wait.since - more_s <= message.at and (wait.until is None or message.at <= wait.until + more_s)
            body = orjson.loads(message.data)
            own = wait.own_id in (None, body["order"]["id"]) and wait.x in (None, body["x"])
            if in_time and own and message.seq not in wait.passed:
                yield message
