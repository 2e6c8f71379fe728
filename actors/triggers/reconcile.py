"""Reconciling a trigger: its consumer and schedule at the broker are made as its record says.

The process that changed the record does that, and every engine that sees the change. All of it can be repeated, and
done by several at once: the record's revision decides whose choice counts.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from uuid import uuid4

from msgspec.structs import replace

from penstock.broker.store import Store
from penstock.broker.streams.events import Tick, text_of
from penstock.broker.triggers.triggers import Retired, StoredTrigger, TriggerEntry
from penstock.config.logging import get_logger
from penstock.config.process.crash_points import reached
from penstock.engine.errors import Conflict, NotFound, Unavailable
from penstock.engine.trigger.cron import Cron
from penstock.engine.trigger.trigger import Trigger

TRIES_MAX = 20
OVERDUE_S = 5.0  # what is late by less may still come by itself

log = get_logger()


async def reconcile(store: Store, name: str) -> StoredTrigger | None:
    """Close former generations, choose the stream of the current one, create its consumer and schedule.

    Returns the trigger as it is now, None when it is gone. Raises Unavailable, or Invalid when no stream can be had.
    """
    for _ in range(TRIES_MAX):
        found = await store.triggers.find(name)
        if found.kept is None:
            return None
        try:
            if found.kept.settled:
                await prepare(store, found.kept)
                return found.kept
            await _apply(store, found, found.kept)
        except Conflict:
            continue  # another process did it, or changed the trigger
        except NotFound:
            await _listen_elsewhere(store, found, found.kept)
    raise Unavailable(f'trigger "{name}" is being changed by too many at once')


async def prepare(store: Store, kept: StoredTrigger) -> None:
    """Create the consumer of an active trigger, and the schedule of its next instant, unless they exist.

    What was created for a trigger that was deleted or changed meanwhile is removed again: the process that did so may
    have cleaned up before. Raises NotFound when the stream that it listens to is gone.
    """
    if not kept.active:
        return
    await store.sources.open(kept)
    if kept.trigger.batching is not None:
        await store.batches.repeat_overdue(kept.generation, await store.history.now() - OVERDUE_S)
    if kept.trigger.cron is not None and not await store.events.scheduled(kept.trigger.name, kept.generation):
        progress = await store.triggers.progress(kept.trigger.name)
        last = progress.at if progress is not None and progress.generation == kept.generation else kept.since
        await schedule_after(store, kept, datetime.fromisoformat(last))
    await _close_if_replaced(store, kept.trigger.name, kept.current)


async def schedule_after(store: Store, kept: StoredTrigger, instant: datetime) -> None:
    """Schedule a tick at the trigger's first instant after this one, unless the broker has one already."""
    following = cron_of(kept.trigger).next(instant)
    if following is not None:
        await store.events.schedule(Tick(kept.trigger.name, kept.generation, text_of(following)))


def new_generation() -> str:
    """A new id, 16 hexadecimal characters."""
    return uuid4().hex[:16]


def cron_of(trigger: Trigger) -> Cron:
    assert trigger.cron is not None
    return Cron(trigger.cron.expression, trigger.cron.timezone)


async def _apply(store: Store, found: TriggerEntry, kept: StoredTrigger) -> None:
    for retired in kept.retired:
        await store.sources.close(found.name, retired)
    if kept.deleted:
        await store.triggers.remove(found)
        return
    stream, after_seq = kept.stream, kept.after_seq
    if kept.generation and not stream:
        stream, after_seq = await store.sources.choose(kept)
        reached("trigger.source_chosen")
    try:
        await store.triggers.write(found, replace(kept, stream=stream, after_seq=after_seq, retired=()))
    except Conflict:
        await _close_if_replaced(store, found.name, replace(kept, stream=stream).current)
        raise


async def _close_if_replaced(store: Store, name: str, chosen: Retired) -> None:
    """Close what was created for a generation that is no longer the trigger's current one."""
    now = await store.triggers.find(name)
    if chosen.generation and (now.kept is None or now.kept.generation != chosen.generation):
        await store.sources.close(name, chosen)


async def _listen_elsewhere(store: Store, found: TriggerEntry, kept: StoredTrigger) -> None:
    """The stream that it listened to was removed: give the trigger a new generation, which chooses another stream."""
    if kept.trigger.subject is None:
        raise Unavailable(f"the stream {kept.stream} is gone")
    log.warning("trigger_stream_gone", trigger=found.name, stream=kept.stream)
    retired = (*kept.retired, kept.current)
    with suppress(Conflict):
        await store.triggers.write(
            found, replace(kept, generation=new_generation(), stream="", after_seq=0, retired=retired)
        )
