"""A broker with little room, and how to use it up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import orjson

from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.limits import MIB
from tests.support.own_broker import OwnBroker

FULL = "the broker's storage is full, nothing was stored (insufficient resources)"


@contextmanager
def small_broker(data_dir: Path) -> Iterator[OwnBroker]:
    """A broker of 16 MiB."""
    broker = OwnBroker(data_dir)
    broker.settings = msgspec.structs.replace(broker.settings, max_store_bytes=16 * MIB)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


async def fill(store: Store) -> int:
    """Store signals of nobody's until not a byte more is taken; returns how many mebibytes found room."""
    counts = []
    for size in (MIB, 1):
        counts.append(0)
        while await _takes(store, f"r.{size}-{counts[-1]}", bytes(size)):
            counts[-1] += 1
    return counts[0]


async def make_room(store: Store) -> None:
    """Remove all signals."""
    await store.broker.api(f"STREAM.PURGE.{names.bucket_stream(names.SIGNALS)}")


async def _takes(store: Store, key: str, body: bytes) -> bool:
    answer = await store.broker.request(names.key_subject(names.SIGNALS, key), body)
    return "error" not in orjson.loads(answer.data)
