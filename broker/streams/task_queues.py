"""The content of the task queues by type, for people: also of types that no worker has ever requested."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from datetime import datetime
from typing import Any

from msgspec import Struct

from penstock.broker import names
from penstock.broker.nats.connection import Broker
from penstock.config.process.background import all_of
from penstock.engine.errors import PenstockError
from penstock.engine.times import rfc3339

AT_ONCE = 16
QUEUES_MAX = 1_000  # whose oldest task is read
CONSUMERS_MAX = 10_000  # the broker lists 256 at a time
SUBJECTS_MAX = 100_000  # of tasks without a consumer; the size of the broker's page

Kind = tuple[str, str | None]
"""Task type and group."""


class TaskQueue(Struct, frozen=True):
    """`waiting` tasks are with no worker, `in_hand` ones are delivered and not acknowledged; `oldest_at` is the time of
    the oldest."""

    task: str
    group: str | None
    waiting: int
    in_hand: int
    oldest_at: str | None = None


async def task_queues(broker: Broker) -> list[TaskQueue]:
    """Every queue, those with most tasks first. Raises Unavailable, ApiError."""
    consumers = await _consumers(broker)
    claimed = sum(info["num_pending"] + info["num_ack_pending"] for info in consumers.values())
    stored = (await broker.api(f"STREAM.INFO.{names.TASKS}"))["state"]["messages"]
    counts = {kind: (info["num_pending"], info["num_ack_pending"]) for kind, info in consumers.items()}
    if stored > claimed:
        counts |= {kind: (waiting, 0) for kind, waiting in (await _unclaimed(broker, consumers.keys())).items()}
    order = sorted(counts, key=lambda kind: (-sum(counts[kind]), kind[0], kind[1] or ""))
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(kind: Kind) -> TaskQueue:
        async with gate:
            return TaskQueue(
                *kind, *counts[kind], await _oldest_at(broker, kind, consumers.get(kind)) if sum(counts[kind]) else None
            )

    return await all_of(map(one, order[:QUEUES_MAX])) + [TaskQueue(*kind, *counts[kind]) for kind in order[QUEUES_MAX:]]


async def _consumers(broker: Broker) -> dict[Kind, dict[str, Any]]:
    found: dict[Kind, dict[str, Any]] = {}
    seen = 0
    while seen < CONSUMERS_MAX:
        page = await broker.api(f"CONSUMER.LIST.{names.TASKS}", {"offset": seen})
        for info in page["consumers"] or []:
            if subject := info["config"].get("filter_subject"):
                found[names.task_of(subject)] = info
        seen += len(page["consumers"] or [])
        if not page["consumers"] or seen >= page["total"]:
            break
    return found


async def _unclaimed(broker: Broker, claimed: Collection[Kind]) -> Counter[Kind]:
    """The number of tasks of each type without a consumer."""
    state = (await broker.api(f"STREAM.INFO.{names.TASKS}", {"subjects_filter": "task.>"}))["state"]
    found = Counter[Kind]()
    for subject, count in (state.get("subjects") or {}).items():
        if (kind := names.task_of(subject)) not in claimed:
            found[kind] += count
    return found


async def _oldest_at(broker: Broker, kind: Kind, consumer: dict[str, Any] | None) -> str | None:
    """Everything up to a consumer's floor was acknowledged: the first message after it is its oldest."""
    if consumer is None:
        request = {"seq": 1, "next_by_subj": names.task_filter(*kind)}
    else:
        request = {"seq": consumer["ack_floor"]["stream_seq"] + 1, "next_by_subj": consumer["config"]["filter_subject"]}
    try:
        message = (await broker.api(f"STREAM.MSG.GET.{names.TASKS}", request))["message"]
    except PenstockError:  # it was answered meanwhile
        return None
    return rfc3339(datetime.fromisoformat(message["time"][:26].rstrip("Z") + "+00:00").timestamp())
