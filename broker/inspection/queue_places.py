"""How far a task queue is, and at which place of it a task is: for people; nothing depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from penstock.broker import names
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.direct import DirectReader, Stored
from penstock.broker.nats.errors import ApiError, Code
from penstock.broker.streams.consumers import ConsumerProgress, progress_in
from penstock.engine.definition.subjects import covers

COUNTED_MAX = 5_000  # messages after a task that are counted for its place


class PlaceInQueue(Struct, frozen=True):
    """A place counted from 1 among the tasks that no worker has got yet; 0: it was delivered. `exact`: it was counted,
    not estimated."""

    number: int
    exact: bool = True


async def queue_progress(broker: Broker, task: str, group: str | None = None) -> ConsumerProgress | None:
    """How far the queue of a task type (and group) is; None: no worker has ever requested its tasks. Raises
    Unavailable."""
    wanted = names.task_filter(task, group)
    candidates = [
        names.task_consumer(task, group),
        names.former_task_consumer(task),
        names.spare_task_consumer(task, group),
    ]
    for name in dict.fromkeys(candidates):
        info = await _info(broker, names.TASKS, name)
        if info is not None and covers(str(info["config"].get("filter_subject", ">")), wanted):
            return progress_in(info)
    return None


async def bound_progress(broker: Broker, task: str, worker_id: str) -> ConsumerProgress | None:
    """As `queue_progress`, of the tasks of this type that are bound to the worker."""
    info = await _info(broker, names.STICKY, names.sticky_consumer(task, worker_id))
    return None if info is None else progress_in(info)


async def stored_tasks(reader: DirectReader, task: str, group: str | None, run_id: str) -> Sequence[Stored]:
    """The run's tasks of a type in the queue of all workers, at most 1,000 of them."""
    async for page in reader.pages(names.TASKS, names.task_subject(task, run_id, group)):
        return page
    return ()


async def place_of(
    broker: Broker, reader: DirectReader, task: str, group: str | None, seq: int, progress: ConsumerProgress | None
) -> PlaceInQueue:
    """The place of the task with this sequence in the queue of its type.

    Where other types are in the stream between them and many tasks follow, it is estimated: to count those costs the
    broker 30 ms for 100,000 tasks.
    """
    if progress is None:
        return PlaceInQueue(1, exact=False)
    ahead = seq - progress.delivered
    if ahead <= 0:
        return PlaceInQueue(0)
    last_seq = int((await broker.api(f"STREAM.INFO.{names.TASKS}"))["state"]["last_seq"])
    if progress.pending >= last_seq - progress.delivered:  # nothing else is between them
        return PlaceInQueue(ahead)
    if last_seq - seq <= COUNTED_MAX:
        after = await reader.count(names.TASKS, names.task_filter(task, group), seq + 1)
        return PlaceInQueue(max(1, progress.pending - after))
    estimated = round(progress.pending * ahead / (last_seq - progress.delivered))
    return PlaceInQueue(min(max(1, estimated), ahead), exact=False)


async def _info(broker: Broker, stream: str, consumer: str) -> dict[str, Any] | None:
    try:
        return await broker.api(f"CONSUMER.INFO.{stream}.{consumer}")
    except ApiError as error:
        if error.err_code != Code.CONSUMER_NOT_FOUND:
            raise
        return None
