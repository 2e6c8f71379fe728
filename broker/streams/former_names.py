"""Tasks that a former version queued under a name that has another type, group or worker today: found, and moved.

Each stays where it is as long as a client requests or holds it there: for example a worker of that version.
"""

from __future__ import annotations

from typing import Any

from penstock.broker import names
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.direct import DirectReader, Stored
from penstock.broker.nats.errors import ApiError, Code
from penstock.broker.nats.headers import MSG_ID
from penstock.broker.nats.publisher import Publisher
from penstock.broker.nats.pull import Delivery, take_unheld
from penstock.engine.definition.subjects import covers

# Subjects that may be ambiguous: those of types with dots, because groups and dots in worker ids looked the same.
AMBIGUOUS = {names.TASKS: "task.*.*.>", names.STICKY: "sticky.*.*.*.>"}


class FormerNames:
    """Both streams of tasks. It has no state."""

    def __init__(self, broker: Broker, publisher: Publisher, reader: DirectReader) -> None:
        self._broker, self._publisher, self._reader = broker, publisher, reader

    async def ambiguous(self, stream: str, from_seq: int) -> list[Stored]:
        """The first tasks from there on whose subjects a former version may have used with another meaning. Raises
        Unavailable."""
        async for page in self._reader.pages(stream, AMBIGUOUS[stream], from_seq):
            return page
        return []

    async def free(self, stored: Stored) -> list[Delivery] | None:
        """The tasks in this task's queue that no client holds, if no client requests them; None: the task is in no
        queue."""
        task, _ = names.task_of(stored.subject)
        for consumer in (names.former_task_consumer(task), names.task_consumer(task)):
            info = await self._info(names.TASKS, consumer)
            if info is not None and covers(str(info["config"].get("filter_subject", ">")), stored.subject):
                return [] if info["num_waiting"] else await take_unheld(self._broker, names.TASKS, consumer)
        return None

    async def is_bound(self, stored: Stored, task: str, worker_id: str) -> bool:
        """Whether the worker consumes this subject, as a worker of a former version does."""
        info = await self._info(names.STICKY, names.sticky_consumer(task, worker_id))
        return info is not None and covers(str(info["config"].get("filter_subject", ">")), stored.subject)

    async def move(self, stream: str, stored: Stored, subject: str | None, message_id: str) -> None:
        """Queue the task under this subject, and remove the former one; None: only remove it. Repeating it is safe.
        Raises Unavailable."""
        if subject is not None:
            await self._publisher.send(subject, stored.data, {MSG_ID: f"{message_id}.moved"})
        await self._broker.remove(f"STREAM.MSG.DELETE.{stream}", {"seq": stored.seq, "no_erase": True})

    async def _info(self, stream: str, consumer: str) -> dict[str, Any] | None:
        try:
            return await self._broker.api(f"CONSUMER.INFO.{stream}.{consumer}")
        except ApiError as error:
            if error.err_code != Code.CONSUMER_NOT_FOUND:
                raise
            return None
