"""Which shard owns which partitions. A run's partition never changes; more shards means that partitions move, never runs."""

from __future__ import annotations

import orjson

from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.limits import PARTITIONS
from penstock.engine.errors import Conflict

ANSWER_S = 0.3


def owned(shard: int, shards: int) -> tuple[int, ...]:
    """The partitions of shard number `shard` (from 0) out of `shards`: every partition belongs to exactly one."""
    assert 0 <= shard < shards
    return tuple(number for number in range(PARTITIONS) if number % shards == shard)


async def refuse_second_owner(store: Store, partitions: tuple[int, ...]) -> None:
    """Raise Conflict when a live shard owns one of these partitions: two owners of one would repeat each other's work."""
    answers = await store.broker.ask_all(names.ENGINE_PING, lambda found: len(found) == PARTITIONS, ANSWER_S)
    taken = {number for answer in answers for number in orjson.loads(answer)["partitions"]} & set(partitions)
    if taken:
        raise Conflict(f"partitions {', '.join(map(str, sorted(taken)))} are owned by another engine that is alive")
