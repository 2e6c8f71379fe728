"""Handling trigger events, one delivery at a time: each starts a run, or becomes a dead letter, then is acknowledged.

A redelivery, here or in another engine, derives the same run id: the run exists already, and is not started again.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw, UnsetType

from penstock.actors.triggers.batching import BatchHandler
from penstock.actors.triggers.reconcile import cron_of, schedule_after
from penstock.actors.triggers.starting import Starter
from penstock.broker import names
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store
from penstock.broker.streams.events import decode_tick, event_id, headers_of, text_of, trace_of
from penstock.broker.triggers.triggers import Progress, StoredTrigger
from penstock.config.logging import get_logger
from penstock.config.process.crash_points import reached
from penstock.engine.errors import Invalid, TooLarge
from penstock.engine.run.event_payloads import NULL
from penstock.engine.times import rfc3339
from penstock.engine.trigger.batching import Batching
from penstock.engine.trigger.trigger import Trigger
from penstock.engine.trigger.trigger_events import as_json, matches, run_id, run_input
from penstock.telemetry.tracing import trace_parent

CAUGHT_UP_MAX = 100  # instants of one delivery; the next one beyond them is scheduled, and due at once

log = get_logger()


class TriggerEventHandler:
    """Starts runs for trigger events. Owned by a TriggerRunner."""

    def __init__(self, store: Store) -> None:
        self._store, self._starter = store, Starter(store)
        self._batches = BatchHandler(store, self._starter)

    async def handle(self, name: str, generation: str, delivery: Delivery) -> None:
        """Handle one delivery of a trigger's consumer; it may be acknowledged when this returns. Raises Unavailable.

        Deliveries of a former generation are dropped: its trigger was deleted, disabled or given another source.
        """
        kept = (await self._store.triggers.find(name)).kept
        if kept is None or kept.generation != generation:
            return
        if kept.trigger.cron is not None:
            await self._tick(kept, delivery)
        elif kept.trigger.batching is not None and names.is_batch_tick(delivery.subject):
            await self._batches.tick(kept, kept.trigger.batching, delivery)
        elif kept.trigger.event is not None and not matches(kept.trigger.event, delivery.data):
            return
        elif kept.trigger.batching is not None:
            await self._take_up(kept, kept.trigger.batching, delivery)
        else:
            await self._start(kept.trigger, _event_name(generation, delivery), delivery, rfc3339(delivery.at))

    async def give_up(self, name: str, generation: str, delivery: Delivery, error: str) -> None:
        """Keep a delivery that cannot be handled as a dead letter; a cron trigger then waits for its next instant.
        Raises Unavailable."""
        kept = (await self._store.triggers.find(name)).kept
        if kept is None or kept.generation != generation:
            return
        run = run_id(name, _event_name(generation, delivery))
        await self._store.dead_letters.store_trigger_event(name, delivery.subject, delivery.data, run, error)
        tick = decode_tick(delivery.data) if kept.trigger.cron is not None else None
        if tick is not None and tick.generation == generation:
            await self._wait_for_next(kept, tick.instant)

    async def _tick(self, kept: StoredTrigger, delivery: Delivery) -> None:
        """Start a run for the instant, and for those that have passed since; then wait for the next one.

        After a crash between any two lines the delivery is repeated, and what was done before is not done again. The
        next instant is scheduled before this one is acknowledged: so there is always one of the two.
        """
        tick = decode_tick(delivery.data)
        if tick is None or tick.generation != kept.generation:
            return
        last = tick.instant
        for instant in _due(kept.trigger, last, delivery.at):
            at = text_of(instant)
            await self._start(kept.trigger, f"at {at}", delivery, at)
            last = instant
        await self._wait_for_next(kept, last)

    async def _wait_for_next(self, kept: StoredTrigger, last: datetime) -> None:
        """Record that all instants up to `last` are handled, and schedule the next one."""
        await self._store.triggers.set_progress(kept.trigger.name, Progress(kept.generation, text_of(last)))
        reached("cron.progressed")
        await schedule_after(self._store, kept, last)
        reached("cron.scheduled")

    async def _take_up(self, kept: StoredTrigger, batching: Batching, delivery: Delivery) -> None:
        try:
            await self._batches.take_up(kept, batching, delivery)
        except (Invalid, TooLarge) as error:
            run = run_id(kept.trigger.name, _event_name(kept.generation, delivery))
            await self._dead_letter(kept.trigger, delivery, run, rfc3339(delivery.at), error)

    async def _start(self, trigger: Trigger, event_name: str, delivery: Delivery, at: str) -> None:
        run = run_id(trigger.name, event_name)
        try:
            value = _own_input(trigger) if trigger.cron is not None else run_input(trigger, delivery.data)
            event = as_json(delivery.data) if trigger.labels and trigger.cron is None else NULL
            trace = self._sender_span(trigger, delivery)
            await self._starter.start(trigger, run, value, at, headers_of(delivery), event, trace)
            reached("trigger_event.started")
        except (Invalid, TooLarge) as error:
            await self._dead_letter(trigger, delivery, run, at, error)
        else:
            log.debug("trigger_fired", trigger=trigger.name, kind=trigger.kind, run_id=run, at=at)

    async def _dead_letter(self, trigger: Trigger, delivery: Delivery, run: str, at: str, error: Exception) -> None:
        await self._store.dead_letters.store_trigger_event(
            trigger.name, delivery.subject, delivery.data, run, str(error)
        )
        reached("trigger_event.dead_letter_stored")
        log.error(
            "trigger_could_not_start", trigger=trigger.name, workflow=trigger.workflow, at=at, error=_first_line(error)
        )

    def _sender_span(self, trigger: Trigger, delivery: Delivery) -> str | None:
        """The span in which the event was sent: where traces are exported, the run is below it. An instant of a cron
        trigger has none, and each of its runs a trace of its own."""
        if self._store.telemetry.otlp is None or trigger.cron is not None:
            return None
        found = trace_parent(trace_of(delivery))
        return None if found is None else found.text


def _event_name(generation: str, delivery: Delivery) -> str:
    """The permanent name of a trigger event: the publisher's own id, else generation and sequence."""
    named = event_id(delivery)
    return f"event {named}" if named else f"message {generation} {delivery.seq}"


def _due(trigger: Trigger, first: datetime, until: float) -> list[datetime]:
    """The instant and those after it that had passed when the broker published it (s since the epoch), in their
    order."""
    cron, found = cron_of(trigger), [first]
    while len(found) < CAUGHT_UP_MAX:
        following = cron.next(found[-1])
        if following is None or following.timestamp() > until:
            break
        found.append(following)
    return found


def _own_input(trigger: Trigger) -> Raw:
    return NULL if isinstance(trigger.input, UnsetType) else trigger.input


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
