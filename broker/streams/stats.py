"""Statistics of streams and task queues for the metrics, with a bounded number of requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Struct

from penstock.broker import names
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.direct import DirectReader
from penstock.config.process.background import all_of
from penstock.engine.errors import PenstockError
from penstock.telemetry.metrics import LABELS_MAX, OTHER

Kind: TypeAlias = tuple[str, str | None]
"""Task type and worker group."""

CONSUMERS_MAX = 2_000  # task types that are read; the broker lists 256 at a time
AT_ONCE = 16


class Stream(Struct, frozen=True):
    """`last_seq` is the sequence of the last message that was ever stored."""

    messages: int
    bytes: int
    last_seq: int


class Queue(Struct, frozen=True):
    """Tasks of one type (and group): `waiting` for a worker, and delivered but not acknowledged. `oldest_s` is the age
    of the oldest."""

    waiting: int
    delivered: int
    oldest_s: float | None = None


class Queues(Struct, frozen=True):
    """`unclaimed` are tasks of types (and groups) without a consumer, because no worker has requested them so far: of
    each known type, and of all others together as OTHER."""

    by_task: dict[str, Queue]
    unclaimed: dict[str, int]


async def streams(broker: Broker, wanted: Iterable[str]) -> dict[str, Stream]:
    """Those of these streams that exist. Raises Unavailable without an answer."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> tuple[str, Stream | None]:
        async with gate:
            return name, await _stream(broker, name)

    found = await all_of(map(one, wanted))
    return {name: stream for name, stream in found if stream is not None}


async def _stream(broker: Broker, name: str) -> Stream | None:
    try:
        state = (await broker.api(f"STREAM.INFO.{name}"))["state"]
    except PenstockError:
        return None
    return Stream(state["messages"], state["bytes"], state["last_seq"])


async def queues(broker: Broker, reader: DirectReader, known: Callable[[], Awaitable[Iterable[Kind]]]) -> Queues:
    """The types with the most tasks, and all others together as OTHER. Raises Unavailable, ApiError.

    `known` are types that may have tasks without a consumer; they are read only if there are such tasks.
    """
    stored = await _stream(broker, names.TASKS)
    consumers = sorted(await _consumers(broker), key=_tasks, reverse=True)
    listed, rest = consumers[:LABELS_MAX], consumers[LABELS_MAX:]
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(info: dict[str, Any]) -> Queue:
        async with gate:
            return Queue(info["num_pending"], info["num_ack_pending"], await _oldest_s(broker, info))

    found = dict(zip(map(_task, listed), await all_of(map(one, listed)), strict=True))
    if rest:
        found[OTHER] = Queue(sum(info["num_pending"] for info in rest), sum(info["num_ack_pending"] for info in rest))
    unclaimed = max(0, (stored.messages if stored else 0) - sum(map(_tasks, consumers)))
    claimed = {names.task_of(info["config"]["filter_subject"]) for info in consumers}
    by_type = await _unclaimed(reader, sorted(set(await known()) - claimed, key=str)[:LABELS_MAX]) if unclaimed else {}
    return Queues(found, {**by_type, OTHER: max(0, unclaimed - sum(by_type.values()))})


async def _unclaimed(reader: DirectReader, kinds: Iterable[Kind]) -> dict[str, int]:
    """The number of tasks of each type that has any. A list of their subjects would have one entry for each run."""
    found = {}
    for kind in kinds:
        count = await reader.count(names.TASKS, names.task_filter(*kind))
        if count:
            found[_name(*kind)] = count
    return found


async def _consumers(broker: Broker) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < CONSUMERS_MAX:
        page = await broker.api(f"CONSUMER.LIST.{names.TASKS}", {"offset": len(found)})
        found += page["consumers"] or []
        if not page["consumers"] or len(found) >= page["total"]:
            break
    return [info for info in found if info["config"].get("filter_subject")]


def _tasks(info: dict[str, Any]) -> int:
    return int(info["num_pending"] + info["num_ack_pending"])


def _task(info: dict[str, Any]) -> str:
    """The type (and group) that a consumer's filter is for."""
    return _name(*names.task_of(info["config"]["filter_subject"]))


def _name(task: str, group: str | None) -> str:
    return task if group is None else f"{task}:{group}"


async def _oldest_s(broker: Broker, info: dict[str, Any]) -> float:
    """Everything up to the consumer's floor was acknowledged: the first message after it is its oldest."""
    if not _tasks(info):
        return 0.0
    request = {"seq": info["ack_floor"]["stream_seq"] + 1, "next_by_subj": info["config"]["filter_subject"]}
    try:
        message = (await broker.api(f"STREAM.MSG.GET.{names.TASKS}", request))["message"]
    except PenstockError:  # it was answered meanwhile
        return 0.0
    stored = datetime.fromisoformat(message["time"][:26].rstrip("Z") + "+00:00").timestamp()
    return max(0.0, time.time() - stored)
