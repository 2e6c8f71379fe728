"""Who is no part of the service and no worker, and can publish all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from zlib import crc32

import orjson
from msgspec import Raw

from penstock.actors.control import events
from penstock.broker import message_ids, names
from penstock.broker.nats.headers import MSG_ID
from penstock.broker.store import Store
from penstock.engine.errors import Unavailable
from penstock.engine.run.event_payloads import ChildEnd, ParentRef, StepFacts
from penstock.engine.run.events import ChildEnded, Event, StepStarted, WorkflowStarted, encode
from penstock.engine.run.state import Run, StepStatus
from penstock.engine.times import rfc3339
from tests.simulation.broken import Broken

if TYPE_CHECKING:
    from tests.simulation.world import World

# What is sent for a run that waits for an event, each so many s after the run has begun, or after the wait has: with
# which `x`, whether it is about this run, and whether it is sent by two requests with one key.
SENT = (
    (0.0, 1, True, False),
    (0.02, 1, True, True),
    (0.1, 0, True, False),
    (0.3, 1, False, False),
    (0.6, 1, True, True),
    (1.5, 2, True, False),
    (2.3, 1, True, False),
    (4.0, 2, True, False),
)
FAIR_X = (1, 2, 3)  # the last one comes only now
FOREIGN_RUN = "f" * 32


class Strangers:
    def __init__(self, world: World) -> None:
        self._world = world
        self.sent: dict[str, set[int]] = {}

    def changed(self, run: Run, event: Event) -> None:
        """A run has begun, or one of its steps: some send what it may wait for."""
        match event:
            case WorkflowStarted():
                self._answer(run, ("e", "f"), 1, "start")
            case StepStarted(payload=StepFacts(event=str() as name)):
                self._answer(run, (name,), 2, f"{event.step_id}.{event.attempt_number}")
            case _:
                pass

    def be_fair(self, run: Run) -> None:
        """What the run waits for comes."""
        for wait in [step.waits_for for step in run.steps.values() if step.status is StepStatus.RUNNING]:
            for x in FAIR_X if wait is not None else ():
                self._send(wait.event, _body(run.run_id, x))

    def check(self) -> None:
        """At the end: one event for each key. Raises Broken."""
        stored = Counter(
            message.headers[names.EVENT_ID]
            for message in self._world.server.streams[names.EVENTS].messages.values()
            if names.EVENT_ID in message.headers
        )
        for event_id, count in stored.items():
            if count > 1:
                raise Broken(f"{count} events have the key {event_id}")
        for key, seqs in self.sent.items():
            if len(seqs) > 1:
                raise Broken(f"who has sent an event with the key {key} was told that it is {seqs}")

    def _answer(self, run: Run, event_names: Sequence[str], most: int, about: str) -> None:
        if self._world.fair or not self._waits(run):
            return
        for name in event_names:
            chance = crc32(f"{self._world.label(run.run_id)}.{about}.{name}".encode())
            for number in range(chance % (most + 1)):
                after_s, x, own, twice = SENT[(chance // 7 + 3 * number) % len(SENT)]
                body = _body(run.run_id if own else FOREIGN_RUN, x)
                key = f"{run.run_id}.{about}.{name}.{number}" if twice else None
                self._world.server.later(after_s, self._world.server.when_up, self._send, name, body, key)

    def _waits(self, run: Run) -> bool:
        steps = self._world.watch.of[run.run_id].definition.steps
        return any(step.type == "wait_for_event" for step in steps)

    def _send(self, name: str, body: bytes, key: str | None = None) -> None:
        """Two requests at the same time with a key; without one, a program publishes it."""
        server, front = self._world.server, self._world.front
        if key is None:
            server.publish(server.streams[names.EVENTS], names.event_subject(name), body, {})
        elif front.store is not None and front.alive:
            for _ in range(2):
                front.spawn(self._request(front.store, name, body, key))

    async def _request(self, store: Store, name: str, body: bytes, key: str) -> None:
        with suppress(Unavailable):
            self.sent.setdefault(key, set()).add(await events.send(store, name, body, key))

    def end_child(self, pick: int) -> None:
        """Say to a run that waits for a child that another run has ended."""
        runs = self._world.watch.runs.values()
        waiting = [run.parent for run in runs if isinstance(run.parent, ParentRef) and not run.ended]
        if waiting:
            parent = waiting[pick % len(waiting)]
            event = ChildEnded(
                run_id=parent.run_id,
                step_id=parent.step_id,
                timestamp=rfc3339(self._world.server.wall),
                attempt_number=parent.attempt,
                item=parent.item,
                payload=ChildEnd(FOREIGN_RUN, ("completed", "failed", "cancelled")[pick % 3], Raw(b'{"x":9}')),
            )
            self._world.server.when_up(self._publish, event)

    def _publish(self, event: Event) -> None:
        server = self._world.server
        server.publish(
            server.history, names.history_subject(event.run_id), encode(event), {MSG_ID: message_ids.of_event(event)}
        )


def _body(run_id: str, x: int) -> bytes:
    return orjson.dumps({"order": {"id": run_id}, "x": x})
