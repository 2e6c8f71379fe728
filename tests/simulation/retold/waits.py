"""Which event a wait must end with: told from the stream of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import orjson

from penstock.broker import names
from penstock.engine.definition.durations import parse
from penstock.engine.run.event_payloads import StepFacts
from penstock.engine.run.events import EventReceived
from penstock.engine.run.state import Run
from penstock.engine.times import instant
from tests.simulation.retold.told import Told, json
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

    def __init__(self, told: Told, events: Stream) -> None:
        self._told, self._events = told, events
        self._waits: dict[str, Wait] = {}
        self._completed: dict[str, int] = {}

    def begun(self, step_id: str, facts: StepFacts) -> None:
        """What a step waits for, and from when on: that is written down when it begins to. Raises Broken."""
        told = (instant(facts.since or ""), None if facts.until is None else instant(facts.until))
        wanted = [self._wait(step_id, at) for at in self._told.ordered_at[step_id]]
        waits = [one for one in wanted if _is_near(one.since, told[0]) and _is_near(one.until, told[1])]
        if not waits:
            raise self._told.broken(f"{step_id} waits from {told[0]} to {told[1]}, not as {wanted}")
        self._waits[step_id] = waits[0]

    def taken_over(self, step_id: str, seq: int) -> None:
        """It was ended by this event in the run that is repeated."""
        self._completed[step_id] = seq

    def received(self, before: Run, event: EventReceived) -> None:
        """Raises Broken."""
        step_id, received = event.step_id, event.payload
        if problem := self._problem_with(step_id, received.seq, bytes(received.body)):
            raise self._told.broken(problem)
        self._completed[step_id] = received.seq
        self._told.succeeded(step_id, before.step(step_id).attempts, json(received.body))

    def timed_out(self, before: Run, step_id: str) -> None:
        """The time of a wait is over. Raises Broken."""
        if (missed := self._first(step_id)) is not None:
            raise self._told.broken(f"{step_id} has waited in vain, and event {missed} came in time")
        attempt = before.step(step_id).attempts
        if (self._told.steps[step_id].config or {}).get("on_timeout") == "continue":
            self._told.succeeded(step_id, attempt)
        else:
            self._told.failed(step_id, attempt, "nothing came")

    def _wait(self, step_id: str, ordered_at: float) -> Wait:
        """By the definition. In a resumed run a step waits for what it has waited for before; after a pause for as long
        as it would have, for what came since it could begin."""
        config, ready_at = self._told.steps[step_id].config or {}, self._told.ready_at[step_id]
        former = self._waits.get(step_id)
        since = ready_at - parse(config["lookback"]) if "lookback" in config else ready_at
        before = self._told.before(step_id)
        return Wait(
            config["event"],
            since if former is None else former.since,
            ordered_at + parse(config["timeout"]) if "timeout" in config else None,
            self._told.run_id if "correlate" in config else None,
            int(config["match"][-1]) if "match" in config else None,
            frozenset(seq for one, seq in self._completed.items() if one in before),
        )

    def _first(self, step_id: str) -> int | None:
        """The sequence of the first event that surely counts, and is stored."""
        found = self._matching(self._waits[step_id], -ROUNDED_S)
        return next((message.seq for message in found), None)

    def _problem_with(self, step_id: str, seq: int, body: bytes) -> str | None:
        """Why the wait must not end with this event."""
        wait = self._waits[step_id]
        found = {message.seq: message for message in self._matching(wait, ROUNDED_S)}
        if seq not in found or orjson.loads(found[seq].data) != orjson.loads(body):
            return f"{step_id} was ended by event {seq}, which does not count for it"
        first = self._first(step_id)
        return None if first is None or seq <= first else f"{step_id} was ended by event {seq}, and {first} came before"

    def _matching(self, wait: Wait, more_s: float) -> Iterator[Message]:
        """The events that count, by times with so much at both ends."""
        for message in self._events.matching(names.event_subject(wait.event)):
            in_time = wait.since - more_s <= message.at and (wait.until is None or message.at <= wait.until + more_s)
            body = orjson.loads(message.data)
            own = wait.own_id in (None, body["order"]["id"]) and wait.x in (None, body["x"])
            if in_time and own and message.seq not in wait.passed:
                yield message


def _is_near(wanted: float | None, found: float | None) -> bool:
    if wanted is None or found is None:
        return wanted is found
    return abs(wanted - found) <= ROUNDED_S
