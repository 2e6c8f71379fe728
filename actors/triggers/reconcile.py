"""Settling a trigger: what its record says is made true at the broker. Whoever changed it does that, and every engine
that sees it.

All of it can be repeated, and be done by several at once: the record's revision decides whose choice counts.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from uuid import uuid4

from msgspec.structs import replace

from penstock.broker.store import Store
from penstock.broker.streams.events import Tick, text_of
from penstock.broker.triggers.triggers import Found, Kept, Retired
from penstock.config.logging import get_logger
from penstock.config.process.crash_points import reached
from penstock.engine.errors import Conflict, NotFound, Unavailable
from penstock.engine.trigger.cron import Cron
from penstock.engine.trigger.trigger import Trigger

TRIES_MAX = 20

log = get_logger()


async def settle(store: Store, name: str) -> Kept | None:
    """Remove what earlier generations had, choose the stream of the current one, and make what it needs.

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
            await _settle(store, found, found.kept)
        except Conflict:
            continue  # somebody else did it, or changed the trigger
        except NotFound:
            await _renew(store, found, found.kept)
    raise Unavailable(f'trigger "{name}" is being changed by too many at once')


async def prepare(store: Store, kept: Kept) -> None:
    """Make the consumer of an active trigger, and the schedule of its next instant, unless they are there.

    Nothing stays of a trigger that was deleted or changed meanwhile: whoever did that may have cleared up before this
    was made. Raises NotFound when the stream is gone that it listens to.
    """
    if not kept.active:
        return
    await store.sources.open(kept)
    if kept.trigger.cron is not None and not await store.events.scheduled(kept.trigger.name, kept.generation):
        progress = await store.triggers.progress(kept.trigger.name)
        last = progress.at if progress is not None and progress.generation == kept.generation else kept.since
        await schedule_after(store, kept, datetime.fromisoformat(last))
    await _let_go(store, kept.trigger.name, Retired(kept.generation, kept.stream))


async def schedule_after(store: Store, kept: Kept, instant: datetime) -> None:
    """Have the broker wake us at the first instant after this one, unless it holds one back already."""
    following = cron_of(kept.trigger).next(instant)
    if following is not None:
        await store.events.schedule(Tick(kept.trigger.name, kept.generation, text_of(following)))


def new_generation() -> str:
    """Never the same again."""
    return uuid4().hex[:16]


def cron_of(trigger: Trigger) -> Cron:
    assert trigger.cron is not None
    return Cron(trigger.cron.expression, trigger.cron.timezone)


async def _settle(store: Store, found: Found, kept: Kept) -> None:
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
        await _let_go(store, found.name, Retired(kept.generation, stream))
        raise


async def _let_go(store: Store, name: str, chosen: Retired) -> None:
    """The trigger has changed meanwhile, perhaps by another who has settled this very generation."""
    now = await store.triggers.find(name)
    if chosen.generation and (now.kept is None or now.kept.generation != chosen.generation):
        await store.sources.close(name, chosen)


async def _renew(store: Store, found: Found, kept: Kept) -> None:
    """Somebody removed the stream that it listens to, and what was in it: begin anew, on another stream."""
    if kept.trigger.subject is None:
        raise Unavailable(f"the stream {kept.stream} is gone")
    log.warning("trigger_stream_gone", trigger=found.name, stream=kept.stream)
    retired = (*kept.retired, Retired(kept.generation, kept.stream))
    with suppress(Conflict):
        await store.triggers.write(
            found, replace(kept, generation=new_generation(), stream="", after_seq=0, retired=retired)
        )
