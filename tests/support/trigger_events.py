"""Helpers of trigger tests: they create triggers, run engines for them, and read the runs that were started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from penstock.actors.control import triggers
from penstock.actors.triggers.trigger_runner import open_triggers
from penstock.broker import names
from penstock.broker.nats.errors import ApiError, Code
from penstock.broker.store import Store, open_store
from penstock.broker.triggers.triggers import StoredTrigger
from penstock.config.settings import BrokerSettings
from penstock.engine.run.event_payloads import Started
from penstock.engine.run.events import Malformed, WorkflowStarted, decode
from tests.support.waiting import until


async def make(store: Store, name: str, workflow: str, **more: Any) -> StoredTrigger:
    """Make or replace a trigger; `more` is the rest of its document."""
    return await triggers.put(store, {"name": name, "workflow": workflow, **more})


@asynccontextmanager
async def engine(settings: BrokerSettings) -> AsyncIterator[Store]:
    """A process that runs triggers, as far as the broker can tell: a connection of its own."""
    async with open_store(settings, "triggers") as store, open_triggers(store):
        yield store


async def started(store: Store, workflow: str) -> list[Started]:
    """How every run of the workflow was started, in the order of the log. What is no event is passed over: other tests
    put such things there.
    """
    found = []
    for one in await store.reader.subject(names.HISTORY, "history.*.*"):
        try:
            event = decode(one.data)
        except Malformed:
            continue
        if isinstance(event, WorkflowStarted) and event.payload.workflow == workflow:
            found.append(msgspec.structs.replace(event.payload, input=event.payload.input.copy()))
    return found


async def inputs(store: Store, workflow: str) -> list[str]:
    """The inputs of all runs of the workflow, sorted: who was quicker does not matter."""
    return sorted(bytes(one.input).decode() for one in await started(store, workflow))


async def until_started(store: Store, workflow: str, count: int) -> list[Started]:
    """Return when so many runs of the workflow have been started, or more."""

    async def enough() -> list[Started]:
        found = await started(store, workflow)
        return found if len(found) >= count else []

    return await until(enough)


async def nothing_left(store: Store, kept: StoredTrigger) -> None:
    """Return when the trigger's consumer has been given everything that is stored for it, and an answer for all of it.

    What it says is pending may lag behind what is stored: an event that was just acknowledged is counted a moment
    later. So the place of the newest one decides.
    """

    async def done() -> bool:
        consumer = names.trigger_consumer(kept.trigger.name, kept.generation)
        try:
            info = await store.broker.api(f"CONSUMER.INFO.{kept.stream}.{consumer}")
            newest = await _newest(store, kept.stream, info["config"]["filter_subject"])
        except ApiError:  # it is being made
            return False
        return bool(
            info["ack_floor"]["stream_seq"] >= newest and info["num_pending"] == 0 and info["num_ack_pending"] == 0
        )

    await until(done)


async def _newest(store: Store, stream: str, subject: str) -> int:
    """The sequence of the last message of a subject, 0 without any."""
    try:
        found = await store.broker.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
    except ApiError as error:
        if error.err_code != Code.MESSAGE_NOT_FOUND:
            raise
        return 0
    return int(found["message"]["seq"])


async def publish(store: Store, subject: str, *bodies: bytes) -> None:
    """As any client of the broker does: nobody tells it whether somebody has heard."""
    for body in bodies:
        await store.broker.publish(subject, body)
    await store.broker.flush()


async def gone(store: Store, generation: str) -> bool:
    """Whether nothing at the broker is called by this generation any more: stream, consumer, schedule."""
    streams = (await store.broker.api("STREAM.NAMES")).get("streams") or []
    try:
        consumers = await asyncio.gather(*(store.broker.api(f"CONSUMER.NAMES.{stream}") for stream in streams))
    except ApiError:  # one of the streams has gone meanwhile
        return False
    schedules = await store.reader.subject(names.EVENTS, f"cron.*.{generation}")
    everything = [*streams, *(name for found in consumers for name in found.get("consumers") or [])]
    return not schedules and not any(generation in name for name in everything)
