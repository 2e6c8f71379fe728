"""Triggers that start one run for several events: an event goes into its batch, and a batch that has ended starts its
run.

Events of one trigger are taken up one by one, in their order. After a crash between any two lines the delivery, of an
event or a tick, is repeated, and finds at the broker what was done before:

    taken up    the event is in its batch, or the mark says that it was in one that has ended
    scheduled   the broker has a tick not later than the batch is due, from the batch's first event on
    closed      what is in the batch is settled; whoever finds it closed goes on from here
    started     the run's id is derived from the trigger's generation and the first event: there is only one
    marked      the place of its last event is recorded, so that a repeat of one is known when the batch is gone
    removed     nothing of the batch is left
"""

from __future__ import annotations

import json
from hashlib import sha256

from msgspec import Raw

from penstock.actors.triggers.starting import Starter
from penstock.broker import names
from penstock.broker.nats.direct import Stored
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store
from penstock.broker.streams.events import event_id, headers_of, trace_of
from penstock.broker.triggers.batches import OpenBatch
from penstock.broker.triggers.triggers import StoredTrigger
from penstock.config.logging import get_logger
from penstock.config.process.crash_points import reached
from penstock.engine.errors import Conflict, Invalid, TooLarge
from penstock.engine.run.event_payloads import NULL
from penstock.engine.times import rfc3339
from penstock.engine.trigger.batching import (
    Batching,
    BatchState,
    Debounce,
    due_at,
    extended,
    is_full,
    key_text,
    key_token,
    run_value,
)
from penstock.engine.trigger.trigger import Trigger
from penstock.engine.trigger.trigger_events import as_json, run_id
from penstock.telemetry.tracing import trace_parent

log = get_logger()


class BatchHandler:
    """Owned by a TriggerEventHandler. It has no state."""

    def __init__(self, store: Store, starter: Starter) -> None:
        self._store, self._starter, self._batches = store, starter, store.batches

    async def take_up(self, kept: StoredTrigger, batching: Batching, delivery: Delivery) -> None:
        """Put an event into its batch, which may end with it. Raises Invalid and TooLarge for one that cannot be in
        any, Unavailable."""
        body = as_json(delivery.data)
        key = key_token(key_text(batching, body))
        while True:
            try:
                state = await self._with(kept, batching, key, delivery, bytes(body))
                break
            except Conflict:
                continue  # the batch was closed meanwhile, or this event is in it: look again
        if state is not None and is_full(batching, state):
            await self._end(kept, batching, key)

    async def tick(self, kept: StoredTrigger, batching: Batching, delivery: Delivery) -> None:
        """End the batch of a tick, if it is due by the broker's time; else have another tick when it will be."""
        key = names.batch_key(delivery.subject)
        batch = await self._batches.find(kept.generation, key)
        if batch is not None:
            due = due_at(batching, batch.since, batch.stored_at)
            if batch.state.closed or due <= delivery.at:
                await self._end(kept, batching, key)
            else:
                await self._schedule(kept, batching, key, due)
        reached("batch.ticked")
        await self._batches.end_tick(kept.generation, key, delivery.seq)

    async def _with(
        self, kept: StoredTrigger, batching: Batching, key: str, delivery: Delivery, body: bytes
    ) -> BatchState | None:
        """The open batch with this event in it; None when it was in one that has ended. Raises Conflict."""
        former = await self._batches.find(kept.generation, key)
        if former is not None and (former.state.closed or self._ends_before(batching, former, delivery.seq, body)):
            await self._end(kept, batching, key)
            former = await self._batches.find(kept.generation, key)
        # The mark is read after the batch: it is written before one is removed. Where a batch is open, none is needed:
        # no later event was taken up before this one, so this one is in the open batch or in none.
        if former is None and delivery.seq <= await self._batches.ended_up_to(kept.generation):
            return None
        if former is not None and former.state.seq >= delivery.seq:
            state = former.state
        else:
            state = await self._add(kept, batching, key, delivery, body, former)
        reached("batch.event_stored")
        if state.count == 1:  # later ones need no schedule: a tick that finds its batch not due has the next one
            await self._schedule_first(kept, batching, key)
            reached("batch.scheduled")
        return state

    async def _schedule_first(self, kept: StoredTrigger, batching: Batching, key: str) -> None:
        batch = await self._batches.find(kept.generation, key)
        if batch is not None:
            await self._schedule(kept, batching, key, due_at(batching, batch.since, batch.stored_at))

    def _ends_before(self, batching: Batching, batch: OpenBatch, seq: int, body: bytes) -> bool:
        return batch.state.seq < seq and is_full(batching, batch.state, len(body))

    async def _add(
        self,
        kept: StoredTrigger,
        batching: Batching,
        key: str,
        delivery: Delivery,
        body: bytes,
        former: OpenBatch | None,
    ) -> BatchState:
        state = extended(
            batching,
            None if former is None else former.state,
            0.0 if former is None else former.stored_at,
            seq=delivery.seq,
            size=len(body),
            at=delivery.at,
        )
        await self._batches.add(
            kept.generation, key, state, body, _headers(delivery), former, only_last=isinstance(batching, Debounce)
        )
        return state

    async def _schedule(self, kept: StoredTrigger, batching: Batching, key: str, at: float) -> None:
        """With other periods it is another schedule, so that a former one cannot hold this one up."""
        periods = (batching.period, batching.max_wait if isinstance(batching, Debounce) else "")
        kind = sha256(" ".join(periods).encode()).hexdigest()[:8]
        await self._batches.schedule(kept.generation, key, at, kind)

    async def _end(self, kept: StoredTrigger, batching: Batching, key: str) -> None:
        """Close the batch, start its run, and remove it. Raises Unavailable."""
        while True:
            batch = await self._batches.find(kept.generation, key)
            if batch is None:
                return
            if batch.state.closed:
                break
            try:
                batch = await self._batches.close(kept.generation, key, batch)
                reached("batch.closed")
                break
            except Conflict:
                continue
        if events := await self._batches.events(kept.generation, key):
            await self._start(kept, batching, key, batch, events)
        reached("batch.started")
        await self._batches.ended(kept.generation, batch.state.seq)
        reached("batch.marked")
        await self._batches.remove(kept.generation, key, batch)
        reached("batch.removed")

    async def _start(
        self, kept: StoredTrigger, batching: Batching, key: str, batch: OpenBatch, events: list[Stored]
    ) -> None:
        trigger, last = kept.trigger, events[-1]
        run = batch_run_id(trigger, kept.generation, batch.state.first)
        event = run_value(batching, [one.data for one in _distinct(events)])
        value = trigger.input if isinstance(trigger.input, Raw) else event
        trace = None if self._store.telemetry.otlp is None else trace_parent(trace_of(last))
        try:
            await self._starter.start(
                trigger,
                run,
                value,
                rfc3339(batch.state.at),
                headers_of(last),
                event if trigger.labels else NULL,
                None if trace is None else trace.text,
            )
        except (Invalid, TooLarge) as error:
            await self._store.dead_letters.store_trigger_event(
                trigger.name, names.batch_subject(kept.generation, key), bytes(event), run, str(error)
            )
            log.error(
                "trigger_could_not_start",
                trigger=trigger.name,
                workflow=trigger.workflow,
                events=batch.state.count,
                error=str(error).splitlines()[0],
            )


def batch_run_id(trigger: Trigger, generation: str, first: int) -> str:
    """The id of the one run of the batch whose first event has this place in its stream."""
    return run_id(trigger.name, f"batch {generation} {first}")


def _headers(delivery: Delivery) -> dict[str, str]:
    """What a batch keeps of an event besides its body."""
    found = {
        names.EVENT_ID: event_id(delivery),
        names.EVENT_HEADERS: json.dumps(kept) if (kept := headers_of(delivery)) else None,
        names.TRACE_PARENT: trace_of(delivery),
    }
    return {name: value for name, value in found.items() if value}


def _distinct(events: list[Stored]) -> list[Stored]:
    """Without those that have the id of an earlier one."""
    seen: set[str] = set()
    found = []
    for one in events:
        given = event_id(one)
        if given is None or given not in seen:
            found.append(one)
        if given is not None:
            seen.add(given)
    return found
