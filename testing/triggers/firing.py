"""Triggers in memory: what comes, or a time of a cron expression, starts runs, by the same rules as in the service."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import orjson
from msgspec import Raw, Struct

from penstock.config.limits import PAYLOAD_BYTES_MAX, WEBHOOK_BYTES_MAX
from penstock.engine.definition.identifiers import quoted
from penstock.engine.definition.subjects import covers
from penstock.engine.errors import Conflict, Denied, Invalid, NotFound, PenstockError, TooLarge
from penstock.engine.run.event_payloads import NULL, TriggerRef
from penstock.engine.times import rfc3339
from penstock.engine.trigger.batching import Batching, run_value
from penstock.engine.trigger.cron import Cron
from penstock.engine.trigger.labels import run_labels
from penstock.engine.trigger.signatures import HEX_HEADERS, delivery_id, signed_by
from penstock.engine.trigger.trigger import CronSource, Trigger, parse
from penstock.engine.trigger.trigger_events import as_json, matches, request_input, run_id, run_input
from penstock.testing.memory.catalog import RegisteredWorkflow
from penstock.testing.memory.engine import EngineInMemory
from penstock.testing.memory.timeline import DueAction
from penstock.testing.starting import started
from penstock.testing.triggers.batches import BatchesInMemory, BatchInMemory, TriggerEvent

HEADER_CHARS_MAX = 512  # of a webhook's header that is kept


class FailedTrigger(Struct, frozen=True):
    """A dead letter of a trigger: what came could not start a run. `payload` is as it came."""

    trigger: str
    error: str
    payload: bytes


class TriggersInMemory:
    """Owned by a service in memory."""

    def __init__(self, engine: EngineInMemory) -> None:
        self._engine, self._timeline = engine, engine.timeline
        self._triggers: dict[str, Trigger] = {}
        self._ticks: dict[str, DueAction] = {}
        self._batches = BatchesInMemory(self._timeline, self._start_batch)
        self._seq = self._fired = 0
        self.failed: list[FailedTrigger] = []

    def put(self, document: Mapping[str, Any]) -> Trigger:
        """Create a trigger, or replace the one of this name. Raises Invalid with every problem, Conflict for a route
        that is taken."""
        former = self._triggers.get(str(document.get("name")))
        trigger = parse(orjson.loads(orjson.dumps(document)), former.secret if former else None)
        self._check_route(trigger)
        same = former is not None and former.enabled and trigger.enabled and trigger.same_source(former)
        if not same:
            self._forget(trigger.name)
        self._triggers[trigger.name] = trigger
        if trigger.cron is not None and trigger.enabled and not same:
            self._plan(trigger.name, trigger.cron, self._timeline.now)
        return trigger

    def remove(self, name: str) -> None:
        """Raises NotFound."""
        self.get(name)
        self._forget(name)
        del self._triggers[name]

    def get(self, name: str) -> Trigger:
        """Raises NotFound."""
        if (found := self._triggers.get(name)) is None:
            raise NotFound(f"trigger {quoted(name)} does not exist")
        return found

    def publish(
        self, subject: str, body: bytes, event_id: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Have all triggers take what is published under this subject."""
        self._seq += 1
        event = TriggerEvent(self._seq, self._timeline.now, subject, body, event_id, headers or {})
        for trigger in list(self._triggers.values()):
            if trigger.enabled and _takes(trigger, event):
                self._take(trigger, event)

    def webhook(self, name: str, body: bytes, headers: Mapping[str, str] | None) -> str:
        """Receive a webhook, and return the name of the event that it is. Without headers it is signed with the
        trigger's secret. Raises NotFound, Denied for a signature that is not valid, Invalid, TooLarge."""
        trigger = self._triggers.get(name)
        if trigger is None or trigger.webhook is None or not trigger.enabled:
            raise NotFound(f"webhook {quoted(name)} does not exist")
        if len(body) > WEBHOOK_BYTES_MAX:
            raise TooLarge(f"the body has {len(body)} bytes, {WEBHOOK_BYTES_MAX} is the most")
        secret = trigger.secret or ""
        given = _signed(secret, body) if headers is None else {key.lower(): one for key, one in headers.items()}

        def header(wanted: str) -> str | None:
            return given.get(wanted.lower())

        signed = signed_by(secret, header, body, self._timeline.now) if secret else None
        if signed is None:
            raise Denied("a valid signature is needed")
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise Invalid(f"the body is no JSON: {error}") from error
        if trigger.batch is None and not isinstance(trigger.input, Raw):
            self._checked(trigger, Raw(body))
        kept = {name: value[:HEADER_CHARS_MAX] for name in signed.dialect.headers if (value := header(name))}
        delivery = delivery_id(signed, header, body, value)
        event_id = None if delivery is None else f"webhook.{name}.{sha256(delivery.encode()).hexdigest()[:32]}"
        self.publish(f"event.webhook.{name}", body, event_id, kept)
        return f"webhook.{name}"

    def request(
        self, method: str, path: str, body: bytes, query: Mapping[str, Any], headers: Mapping[str, str], key: str | None
    ) -> str:
        """Start the run of the http trigger with this route, and return its id. Raises NotFound, Invalid, TooLarge."""
        route = f"{method} {path.removeprefix('/')}"
        trigger = next((one for one in self._triggers.values() if one.enabled and one.route == route), None)
        if trigger is None:
            raise NotFound(f"no http trigger has the route {route}")
        event = request_input(method, path.removeprefix("/"), query, headers, body)
        value = trigger.input if isinstance(trigger.input, Raw) else event
        wanted = self._unique(trigger) if key is None else run_id(trigger.name, f"key {key}")
        self._start(trigger, wanted, value, event, self._timeline.stamp)
        return wanted

    def fire(self, name: str, payload: bytes | None) -> str:
        """Start a run by hand, also of a trigger that is not enabled, and return its id. Raises NotFound, Invalid,
        TooLarge."""
        trigger = self.get(name)
        event = NULL if payload is None else Raw(payload)
        value = event if payload is not None or not isinstance(trigger.input, Raw) else trigger.input
        wanted = self._unique(trigger)
        self._start(trigger, wanted, value, event, self._timeline.stamp)
        return wanted

    def _take(self, trigger: Trigger, event: TriggerEvent) -> None:
        try:
            if trigger.batching is not None:
                self._batches.take_up(trigger, trigger.batching, event)
                return
            named = f"message {event.seq}" if event.event_id is None else f"event {event.event_id}"
            value = run_input(trigger, event.body)
            sent = as_json(event.body) if trigger.labels else NULL
            self._start(trigger, run_id(trigger.name, named), value, sent, rfc3339(event.at), event.headers)
        except (Invalid, TooLarge, NotFound) as error:
            self._fail(trigger, error, event.body)

    def _start_batch(self, trigger: Trigger, batching: Batching, batch: BatchInMemory) -> None:
        events = {event.event_id or str(event.seq): event for event in reversed(batch.events)}  # an id counts once
        ordered = sorted(events.values(), key=lambda event: event.seq)
        event = run_value(batching, [one.body for one in ordered])
        value = trigger.input if isinstance(trigger.input, Raw) else event
        assert batch.state is not None
        wanted, last = run_id(trigger.name, f"batch {batch.state.first}"), ordered[-1]
        try:
            self._start(trigger, wanted, value, event, rfc3339(batch.state.at), last.headers)
        except (Invalid, TooLarge, NotFound) as error:
            self._fail(trigger, error, bytes(event))

    def _plan(self, name: str, cron: CronSource, after: float) -> None:
        instant = Cron(cron.expression, cron.timezone).next(datetime.fromtimestamp(after, UTC))
        if instant is not None:
            at = instant.timestamp()
            self._ticks[name] = self._timeline.at(at, lambda: self._tick(name, cron, at), repeats=True)

    def _tick(self, name: str, cron: CronSource, at: float) -> None:
        trigger = self._triggers[name]
        when = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        value = trigger.input if isinstance(trigger.input, Raw) else NULL
        try:
            self._start(trigger, run_id(name, f"at {when}"), value, NULL, when)
        except (Invalid, TooLarge, NotFound) as error:
            self._fail(trigger, error, b"null")
        self._plan(name, cron, at)

    def _start(
        self, trigger: Trigger, wanted: str, value: Raw, event: Raw, at: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """Start the run with this id, unless it was started."""
        if wanted in self._engine.runs:
            return
        found = self._checked(trigger, value)
        labels = run_labels(trigger.labels, event)
        ref = TriggerRef(name=trigger.name, kind=trigger.kind, at=at, headers=dict(headers or {}))
        self._engine.append(started(wanted, found, value, self._timeline.stamp, labels, ref))

    def _checked(self, trigger: Trigger, value: Raw) -> RegisteredWorkflow:
        """The workflow that a run of the trigger would have now. Raises Invalid, TooLarge."""
        size = memoryview(value).nbytes
        if size > PAYLOAD_BYTES_MAX:
            raise TooLarge(f"the input has {size} bytes, {PAYLOAD_BYTES_MAX} is the most")
        found = self._engine.catalog.latest(trigger.workflow)
        if found.schema is not None and (problems := found.schema.check(bytes(value), "input")):
            raise Invalid(*problems)
        return found

    def _check_route(self, trigger: Trigger) -> None:
        for other in self._triggers.values():
            if trigger.route is not None and other.route == trigger.route and other.name != trigger.name:
                raise Conflict(f"the route {trigger.route} is that of trigger {quoted(other.name)}")

    def _forget(self, name: str) -> None:
        if (planned := self._ticks.pop(name, None)) is not None:
            planned.drop()
        self._batches.drop(name)

    def _fail(self, trigger: Trigger, error: PenstockError, payload: bytes) -> None:
        self.failed.append(FailedTrigger(trigger.name, str(error), payload))

    def _unique(self, trigger: Trigger) -> str:
        self._fired += 1
        return run_id(trigger.name, f"by hand {self._fired}")


def _takes(trigger: Trigger, event: TriggerEvent) -> bool:
    """Whether what was published is for this trigger."""
    if trigger.webhook is not None:
        return event.subject == f"event.webhook.{trigger.name}"
    if trigger.event is not None:
        return covers(trigger.event.subject, event.subject) and matches(trigger.event, event.body)
    return trigger.subject is not None and covers(trigger.subject.subject, event.subject)


def _signed(secret: str, body: bytes) -> dict[str, str]:
    return {HEX_HEADERS[0].lower(): f"sha256={hmac.digest(secret.encode(), body, 'sha256').hex()}"}
