"""Waits for events, and the events, in memory. A wait takes the first event that counts, in the order in which they
were sent, as in the service."""

from __future__ import annotations

from typing import NamedTuple

import orjson
from msgspec import Raw

from penstock.engine.errors import ExpressionFailed
from penstock.engine.expressions.expression import Expression
from penstock.engine.run.commands import AwaitEvent, StopWaiting
from penstock.engine.run.event_payloads import EventWait, ReceivedEvent, TimerRef
from penstock.engine.run.events import EventReceived, TimerFired
from penstock.engine.run.execution.beginning import names_of, needed_by
from penstock.engine.run.kinds.correlation import NoValue, key_at, key_of
from penstock.engine.run.kinds.wait_for_event import MATCH
from penstock.engine.run.state import StepState
from penstock.engine.run.timers import TimerKind, timer_name
from penstock.engine.times import instant, rfc3339
from penstock.testing.memory.engine import EngineInMemory, RunInMemory
from penstock.testing.memory.payloads import whole
from penstock.testing.memory.timeline import DueAction

FORMAT = 2  # of `event.received`
LATE_S = 0.000_001  # an event that comes at the deadline still counts


class StoredEvent(NamedTuple):
    """An event from outside, stored at `at` (s since the epoch); `body` is JSON."""

    seq: int
    at: float
    name: str
    body: bytes


class _Waiting(NamedTuple):
    of: RunInMemory
    command: AwaitEvent
    began: float
    deadline: DueAction | None


class WaitsInMemory:
    """Owned by a service in memory."""

    def __init__(self, engine: EngineInMemory) -> None:
        self._engine = engine
        self._waiting: dict[tuple[str, str, int], _Waiting] = {}
        self.events: list[StoredEvent] = []

    def send(self, name: str, body: bytes) -> int:
        """Store an event, and end the waits that it ends. Returns its sequence."""
        event = StoredEvent(len(self.events) + 1, self._engine.timeline.now, name, body)
        self.events.append(event)
        for waiting in list(self._waiting.values()):
            if waiting.command.wait.event == name and _counts(waiting, event):
                self._receive(waiting, event)
        return event.seq

    def begin(self, of: RunInMemory, command: AwaitEvent) -> None:
        """Look for an event among those that are stored, and those to come."""
        key, wait = (of.run_id, command.step_id, command.attempt), command.wait
        if key in self._waiting:
            return
        step = of.known.step(command.step_id)
        waiting = _Waiting(of, command, instant(step.started_at or of.known.created_at), None)
        if wait.until is not None:
            until = wait.until
            planned = self._engine.timeline.at(until + LATE_S, lambda: self._give_up(of.run_id, command, until))
            waiting = waiting._replace(deadline=planned)
        self._waiting[key] = waiting
        found = (event for event in self.events if event.name == wait.event and _counts(waiting, event))
        if (first := next(found, None)) is not None:
            self._receive(waiting, first)

    def end(self, run_id: str, command: StopWaiting) -> None:
        self._drop((run_id, command.step_id, command.attempt))

    def _drop(self, key: tuple[str, str, int]) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None and waiting.deadline is not None:
            waiting.deadline.drop()

    def _receive(self, waiting: _Waiting, event: StoredEvent) -> None:
        run_id, command = waiting.of.run_id, waiting.command
        self._drop((run_id, command.step_id, command.attempt))
        earlier = event.at < waiting.began and command.wait.since < waiting.began
        self._engine.append(
            EventReceived(
                run_id=run_id,
                step_id=command.step_id,
                timestamp=rfc3339(max(self._engine.timeline.now, waiting.began) if earlier else event.at),
                attempt_number=command.attempt,
                payload=ReceivedEvent(event.name, event.seq, Raw(event.body)),
                v=FORMAT,
            )
        )

    def _give_up(self, run_id: str, command: AwaitEvent, until: float) -> None:
        self._drop((run_id, command.step_id, command.attempt))
        name = timer_name(TimerKind.WAIT, command.step_id, StepState())
        fired = TimerRef(timer=name, step_id=command.step_id, attempt=command.attempt)
        self._engine.append(TimerFired(run_id=run_id, timestamp=rfc3339(until), payload=fired))


def _counts(waiting: _Waiting, event: StoredEvent) -> bool:
    """Whether the event was stored in time, is new to the run, and is the one that is waited for."""
    wait = waiting.command.wait
    in_time = wait.since <= event.at and (wait.until is None or event.at <= wait.until)
    return in_time and event.seq not in wait.passed and _correlates(wait, event) and _matches(waiting, event)


def _correlates(wait: EventWait, event: StoredEvent) -> bool:
    if wait.correlate is None:
        return True
    try:
        wanted = key_of(orjson.loads(bytes(wait.correlate.value)))
        return key_at(orjson.loads(event.body), wait.correlate.field) == wanted
    except NoValue:
        return False


def _matches(waiting: _Waiting, event: StoredEvent) -> bool:
    """Whether the step's condition holds; not if it fails."""
    of = waiting.of
    plan = of.whole.plan_of(waiting.command.step_id)
    condition = None if plan is None else plan.later.get(MATCH)
    if plan is None or not isinstance(condition, Expression):
        return True
    wanted = needed_by(of.known, plan, condition.references)
    values = {name: whole(value, of.event_at) for name, value in wanted.items()} | {"event": Raw(event.body)}
    try:
        return condition.holds(names_of(of.known, plan, condition.references, values))
    except ExpressionFailed:
        return False
