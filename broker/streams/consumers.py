"""The consumers of the history's partitions: one for each, or a common one of a shard that has all of them.

An owner whose partition was not handed over to it creates a new consumer. So a former owner that is still running, and
its requests still in flight, have no consumer to pull from or to acknowledge to. Resetting the old consumer is not
enough: it keeps the pending requests, and would deliver to the former owner.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct

from penstock.broker import names
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.consumers import ConsumerConfig, create_consumer
from penstock.broker.nats.errors import ApiError, Code
from penstock.config.limits import ACK_WAIT_S, PARTITIONS
from penstock.engine.errors import Unavailable

LEADER_S = 2.5  # requests while a cluster has no leader are never answered: repeat them soon
ANSWERS_S = 0.5  # a new consumer may not receive requests yet
ANSWERS_TRIED_MAX = 10

T = TypeVar("T")


class ConsumerProgress(Struct, frozen=True):
    """How far a consumer is, at the broker's time `at` (s since the epoch). Everything up to the sequence `floor` is
    acknowledged, and `delivered` is the last one that was delivered; `pending` messages are not, and `in_hand` are
    delivered and not acknowledged. `asked`: a client requests messages now. `in_memory`: it goes with the broker's
    process."""

    at: float
    floor: int
    delivered: int
    pending: int
    in_hand: int
    asked: bool
    in_memory: bool = False


def progress_in(info: dict[str, Any]) -> ConsumerProgress:
    """What the broker's description of a consumer says."""
    return ConsumerProgress(
        datetime.fromisoformat(info["ts"]).timestamp(),
        int(info["ack_floor"]["stream_seq"]),
        int(info["delivered"]["stream_seq"]),
        int(info["num_pending"]),
        int(info["num_ack_pending"]),
        int(info["num_waiting"]) > 0,
        bool(info["config"].get("mem_storage")),
    )


class Consumers:
    """The consumers of partitions. It stores only since when they have not answered."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._silent_since: dict[str, float] = {}

    def silent_s(self, consumer: str) -> float:
        """Seconds since a request was left unanswered; 0: the last answer came, or nothing was requested."""
        now = time.monotonic()
        return now - self._silent_since.get(consumer, now)

    @property
    def in_memory(self) -> bool:
        """Whether new consumers are in the memory of the broker: on one server, which would otherwise write the state
        of each to a file ten times a second. See Owners.note_handled."""
        return not self._broker.clustered

    async def open(self, consumer: str, partition: int | None, start: int) -> None:
        """Create the consumer of a partition (None: of all), to deliver from the sequence `start` on; an existing one
        is not changed. When this returns, it answers. Raises Unavailable."""
        config = ConsumerConfig(
            stream=names.HISTORY,
            name=consumer,
            filter_subject=names.partition_filter(partition),
            ack_policy="all",
            ack_wait_s=ACK_WAIT_S,
            pending_max=-1,
            start_seq=start,
            in_memory=self.in_memory,
        )
        try:
            await self._observed(consumer, create_consumer(self._broker, config, timeout_s=LEADER_S))
        except ApiError as error:
            if error.err_code != Code.CONSUMER_EXISTS:
                raise
        await self._answers(consumer)

    async def _answers(self, consumer: str) -> None:
        """In a cluster, a new consumer loses requests for a moment."""
        for tried in range(ANSWERS_TRIED_MAX):
            try:
                await self._api("INFO", consumer, timeout_s=ANSWERS_S)
                return
            except Unavailable:
                if tried == ANSWERS_TRIED_MAX - 1 or not self._broker.connected:
                    raise

    async def floor(self, consumer: str) -> int | None:
        """The sequence up to which everything is acknowledged, or was removed after it had been delivered: with one
        that is removed so, the broker takes all before it for acknowledged. None: the consumer does not exist. Raises
        Unavailable."""
        found = await self.progress(consumer)
        return None if found is None else found.floor

    async def progress(self, consumer: str) -> ConsumerProgress | None:
        """How far the consumer is; None: it does not exist. Raises Unavailable."""
        try:
            return progress_in(await self._api("INFO", consumer))
        except ApiError as error:
            if error.err_code != Code.CONSUMER_NOT_FOUND:
                raise
            return None

    async def reset(self, consumer: str, start: int) -> bool:
        """Deliver everything from the sequence `start` on again, at once and in order, but nothing before the sequence
        with which the consumer was made. False: the consumer does not exist. Raises Unavailable."""
        try:
            made = await self._api("INFO", consumer)
        except ApiError as error:
            if error.err_code != Code.CONSUMER_NOT_FOUND:
                raise
            return False  # the broker would not answer
        seq = max(start, int(made["config"].get("opt_start_seq", 1)))
        await self._api("RESET", consumer, {"seq": seq})
        return True

    async def latest(self) -> dict[int, str]:
        """The newest consumer of each partition that has any. Raises Unavailable."""
        found: dict[int, str] = {}
        for (_, partition), consumer in sorted(await self._listed(), key=lambda listed: listed[0].epoch):
            found |= dict.fromkeys(range(PARTITIONS) if partition is None else (partition,), consumer)
        return found

    async def former(self, current: Mapping[int, str]) -> list[str]:
        """The consumers that were made before the `current` ones of these partitions, for the same ones. Raises
        Unavailable."""
        epochs = {n: found.epoch for n, one in current.items() if (found := names.engine_consumer_in(one)) is not None}
        oldest = min(epochs.values(), default=-1)
        return [
            consumer
            for (epoch, partition), consumer in await self._listed()
            if epoch < (oldest if partition is None else epochs.get(partition, -1))
        ]

    async def remove(self, consumer: str) -> None:
        """Remove a consumer, if it is there. Raises Unavailable."""
        await self._broker.remove(f"CONSUMER.DELETE.{names.HISTORY}.{consumer}", timeout_s=LEADER_S)

    async def _listed(self) -> list[tuple[names.EngineConsumer, str]]:
        """Each consumer of an engine, with what its name says."""
        found: list[str] = []
        while True:
            answer = await self._broker.api(
                f"CONSUMER.NAMES.{names.HISTORY}", {"offset": len(found)}, timeout_s=LEADER_S
            )
            page = answer.get("consumers") or []
            found += page
            if not page or len(found) >= answer["total"]:
                break
        return [(parsed, one) for one in found if (parsed := names.engine_consumer_in(one)) is not None]

    async def _api(
        self, verb: str, consumer: str, request: dict[str, Any] | None = None, timeout_s: float = LEADER_S
    ) -> dict[str, Any]:
        call = self._broker.api(f"CONSUMER.{verb}.{names.HISTORY}.{consumer}", request, timeout_s=timeout_s)
        return await self._observed(consumer, call)

    async def _observed(self, consumer: str, call: Awaitable[T]) -> T:
        """The answer to a call of the broker's API about this consumer; records whether one came."""
        try:
            answer = await call
        except Unavailable:
            self._silent_since.setdefault(consumer, time.monotonic())
            raise
        except ApiError:
            self._silent_since.pop(consumer, None)
            raise
        self._silent_since.pop(consumer, None)
        return answer
