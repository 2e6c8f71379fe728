"""The tasks of runs that are bound to one worker: that worker's own consumers on the STICKY_TASKS stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from msgspec import Struct

from penstock.broker import names
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.consumers import ConsumerConfig, create_consumer
from penstock.broker.nats.errors import ApiError, Code
from penstock.broker.nats.pull import EXPIRES_S, Delivery, Pull, open_pull, take_unheld
from penstock.config.limits import ACK_WAIT_S, STICKY_CONSUMER_S
from penstock.engine.definition.subjects import covers
from penstock.engine.errors import PenstockError

REMEMBERED_S = 2.0  # for how long the list of consumers is cached


class Taken(Struct, frozen=True):
    """Task types and worker ids of the consumers with our names, and the filters of all others."""

    pairs: frozenset[tuple[str, str]] = frozenset()
    filters: tuple[str, ...] = ()

    def has(self, task: str, worker_id: str) -> bool:
        """Whether a consumer takes this worker's tasks of this type."""
        if (task, worker_id) in self.pairs:
            return True
        wanted = names.sticky_filter(task, worker_id)
        return any(covers(wide, wanted) for wide in self.filters)

    def workers(self) -> frozenset[str]:
        """The workers that take tasks of any type."""
        others = {names.sticky_of(one)[1] for one in self.filters if one.count(".") > 2}
        return frozenset(worker_id for _, worker_id in self.pairs) | others


class StickyTasks:
    """The STICKY_TASKS stream, for those who receive from it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._taken = Taken()
        self._asked_at = float("-inf")
        self._missing: dict[tuple[str, str], float] = {}
        self._asking = asyncio.Lock()
        self._filters: dict[str, str] = {}

    def known_to_take(self, task: str, worker_id: str) -> bool | None:
        """Whether the worker had a consumer for the type at a recent check; None: unknown, call `takes`.

        A cached list of other workers' consumers cannot prove that one is missing: a worker that has just connected
        would be passed over.
        """
        now = time.monotonic()
        if now - self._asked_at < REMEMBERED_S and self._taken.has(task, worker_id):
            return True
        return False if now - self._missing.get((task, worker_id), float("-inf")) < REMEMBERED_S else None

    async def takes(self, task: str, worker_id: str) -> bool:
        """Whether the worker has a consumer for the type now. Concurrent calls share one request. Raises
        Unavailable."""
        since = time.monotonic()
        async with self._asking:
            if self._asked_at < since:
                asked_at = time.monotonic()
                self._taken, self._asked_at = await self.taken(), asked_at
                self._missing = {pair: at for pair, at in self._missing.items() if asked_at - at < REMEMBERED_S}
        there = self._taken.has(task, worker_id)
        if there:
            self._missing.pop((task, worker_id), None)
        else:
            self._missing[task, worker_id] = since
        return there

    async def taken(self) -> Taken:
        """What the existing consumers take. Raises Unavailable."""
        listed = {name: names.sticky_consumer_parts(name) for name in await self._consumers()}
        others = [name for name, parts in listed.items() if parts is None]
        self._filters = {name: await self._filter(name) for name in others}
        return Taken(frozenset(parts for parts in listed.values() if parts is not None), tuple(self._filters.values()))

    async def pairs(self) -> list[tuple[str, str]]:
        """Task type and worker id of each consumer with one of our names. Raises Unavailable."""
        return [parts for name in await self._consumers() if (parts := names.sticky_consumer_parts(name)) is not None]

    async def _consumers(self) -> list[str]:
        found: list[str] = []
        while True:
            answer = await self._broker.api(f"CONSUMER.NAMES.{names.STICKY}", {"offset": len(found)})
            found += (page := answer.get("consumers") or [])
            if not page or len(found) >= answer["total"]:
                return found

    async def _filter(self, consumer: str) -> str:
        """The filter of a consumer with a foreign name: requested once, as long as the consumer exists."""
        if consumer in self._filters:
            return self._filters[consumer]
        try:
            config = (await self._broker.api(f"CONSUMER.INFO.{names.STICKY}.{consumer}"))["config"]
        except ApiError:
            return ""  # it has gone meanwhile
        return str(config.get("filter_subject", ">"))

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
        """Deliveries of one task type for this worker alone, for the time of the block."""

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

    async def waiting(self) -> dict[tuple[str, str], list[str]]:
        """The runs that have tasks in the stream, by task type and worker id. Raises Unavailable."""
        found: dict[tuple[str, str], list[str]] = {}
        if (await self._broker.api(f"STREAM.INFO.{names.STICKY}"))["state"]["messages"]:
            state = (await self._broker.api(f"STREAM.INFO.{names.STICKY}", {"subjects_filter": "sticky.*.*.>"}))[
                "state"
            ]
            for subject in state.get("subjects") or {}:
                found.setdefault(names.sticky_of(subject), []).append(subject.rpartition(".")[2])
        return found

    @asynccontextmanager
    async def unheld(self, task: str, worker_id: str) -> AsyncIterator[list[Delivery]]:
        """Some tasks of this worker that no client holds, if no client requests them: the caller holds them for the
        time of the block. Raises Unavailable.

        A worker that does not extend the deadline of a task for 30 s no longer holds it.
        """
        name = names.sticky_consumer(task, worker_id)
        try:
            there, asked = True, (await self._broker.api(f"CONSUMER.INFO.{names.STICKY}.{name}"))["num_waiting"]
        except ApiError as error:
            if error.err_code != Code.CONSUMER_NOT_FOUND:
                raise
            there, asked = False, 0
            await self._durable(task, worker_id)
        try:
            yield [] if asked else await take_unheld(self._broker, names.STICKY, name)
        finally:
            if not there:  # else the worker would appear to take such tasks
                await self.forget(task, worker_id)

    async def forget(self, task: str, worker_id: str) -> None:
        """Remove the worker's consumer; its tasks stay for its return."""
        with suppress(PenstockError):  # then it goes by itself
            await self._broker.remove(f"CONSUMER.DELETE.{names.STICKY}.{names.sticky_consumer(task, worker_id)}")

    async def forget_unasked(self, task: str, worker_id: str) -> bool:
        """As `forget`, if nobody requests tasks from it now. Returns whether it was removed. Raises Unavailable.

        A worker that comes back in the same moment finds that its consumer is gone, and makes it again.
        """
        name = names.sticky_consumer(task, worker_id)
        try:
            asked = (await self._broker.api(f"CONSUMER.INFO.{names.STICKY}.{name}"))["num_waiting"]
        except ApiError as error:
            if error.err_code != Code.CONSUMER_NOT_FOUND:
                raise
            return False
        if not asked:
            await self.forget(task, worker_id)
        return not asked

    async def _durable(self, task: str, worker_id: str) -> None:
        """Create the consumer, before each start on a new inbox: it may have been removed while it was not used."""
        consumer = ConsumerConfig(
            stream=names.STICKY,
            name=names.sticky_consumer(task, worker_id),
            filter_subject=names.sticky_filter(task, worker_id),
            ack_wait_s=ACK_WAIT_S,
            pending_max=-1,
            forget_after_s=STICKY_CONSUMER_S,
        )
        await create_consumer(self._broker, consumer, update=True, filter_in_subject=True)
