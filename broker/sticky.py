"""The tasks of runs that are bound to one worker: that worker's own consumers on the STICKY_TASKS stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from penstock.broker import names
from penstock.broker.connection import CONSUMER_NOT_FOUND, ApiError, Broker
from penstock.broker.pull import EXPIRES_S, Delivery, Pull, open_pull, take_unheld
from penstock.config.limits import ACK_WAIT_S, STICKY_CONSUMER_S
from penstock.engine.errors import PenstockError


class StickyTasks:
    """A small face over the STICKY_TASKS stream, for those who receive from it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @asynccontextmanager
    async def consume(
        self,
        task: str,
        worker_id: str,
        take: Callable[[Delivery], None],
        *,
        batch: int,
        room: Callable[[], int],
        expires_s: int = EXPIRES_S,
    ) -> AsyncIterator[Pull]:
        """Deliveries of one task type that are for this worker alone, for the time of the block."""

        async def ensure() -> None:
            await self._durable(task, worker_id)

        name = names.sticky_consumer(task, worker_id)
        more = {"batch": batch, "expires_s": expires_s}
        async with open_pull(self._broker, names.STICKY, name, take, room=room, before=ensure, **more) as pull:
            yield pull

    async def runs(self) -> set[str]:
        """The runs that have tasks in the stream."""
        state = (await self._broker.api(f"STREAM.INFO.{names.STICKY}", {"subjects_filter": "sticky.>"}))["state"]
        return {subject.rpartition(".")[2] for subject in state.get("subjects") or {}}

    async def unheld(self, task: str, worker_id: str) -> list[Delivery]:
        """Some tasks of this worker's that nobody holds, if nobody asks for them either: from now on the caller has them.

        Who does not keep a task that it has begun alive at the broker for 30 s does not hold it any more. Raises Unavailable.
        """
        name = names.sticky_consumer(task, worker_id)
        try:
            if (await self._broker.api(f"CONSUMER.INFO.{names.STICKY}.{name}"))["num_waiting"]:
                return []
        except ApiError as error:
            if error.err_code != CONSUMER_NOT_FOUND:
                raise
            await self._durable(task, worker_id)
        return await take_unheld(self._broker, names.STICKY, name)

    async def forget(self, task: str, worker_id: str) -> None:
        """Remove the worker's consumer; its tasks stay, for when it comes back."""
        with suppress(PenstockError):  # then it goes by itself
            await self._broker.remove(f"CONSUMER.DELETE.{names.STICKY}.{names.sticky_consumer(task, worker_id)}")

    async def _durable(self, task: str, worker_id: str) -> None:
        """Made before each beginning on a new inbox: it may have gone while nobody asked."""
        name, filter_subject = names.sticky_consumer(task, worker_id), names.sticky_filter(task, worker_id)
        config = {
            "name": name,
            "durable_name": name,
            "ack_policy": "explicit",
            "ack_wait": int(ACK_WAIT_S * 10**9),
            "max_ack_pending": -1,
            "filter_subject": filter_subject,
            "inactive_threshold": int(STICKY_CONSUMER_S * 10**9),
        }
        await self._broker.api(f"CONSUMER.CREATE.{names.STICKY}.{name}.{filter_subject}", {"stream_name": names.STICKY, "config": config})
