"""A copy of a stream that is in use is that stream, without gaps, and what it schedules still comes."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from penstock.broker import names
from penstock.broker.nats.headers import SCHEDULE, SCHEDULE_TARGET
from penstock.broker.nats.stream_copies import copy_stream, restore_stream
from penstock.broker.store import Store, open_store
from penstock.engine.errors import NotFound, PenstockError
from penstock.engine.times import rfc3339
from tests.support.own_broker import OwnBroker
from tests.support.waiting import until

RUN = "0" * 12 + "7" + "0" * 19
OTHER = names.history_subject(RUN)


async def write(store: Store, count: int) -> None:
    for number in range(count):
        await store.publisher.send(OTHER, b'{"n":%d}' % number, {})


async def test_a_copy_is_a_beginning_of_the_stream(store: Store, tmp_path: Path) -> None:
    await write(store, 300)
    at = time.time() + 2
    headers = {SCHEDULE: f"@at {rfc3339(at)}", SCHEDULE_TARGET: OTHER}
    await store.publisher.send(names.schedule_subject(RUN, "timeout.a"), b'"due"', headers)
    pieces = list[bytes]()
    writing = asyncio.ensure_future(write(store, 300))
    copy = await copy_stream(store.broker, names.HISTORY, pieces.append)
    await writing
    broker = OwnBroker(tmp_path / "other")
    broker.start()
    try:
        async with open_store(broker.settings, "test") as other:
            await restore_stream(other.broker, copy, pieces)
            found = await other.reader.subject(names.HISTORY, "history.>")
            there = await store.reader.subject(names.HISTORY, "history.>")
            assert len(found) >= 300
            assert [(one.seq, one.data, one.at) for one in found] == [
                (one.seq, one.data, one.at) for one in there[: len(found)]
            ]

            async def has_come() -> bool:
                last = await other.reader.one(names.HISTORY, names.stored_subject(RUN))
                return last is not None and last.data == b'"due"'

            await until(has_come)
            with pytest.raises(PenstockError, match="already in use"):
                await restore_stream(other.broker, copy, pieces)
    finally:
        broker.stop()


async def test_half_a_copy_is_refused(store: Store, tmp_path: Path) -> None:
    await write(store, 3)
    pieces = list[bytes]()
    copy = await copy_stream(store.broker, names.HISTORY, pieces.append)
    broker = OwnBroker(tmp_path / "other")
    broker.start()
    try:
        async with open_store(broker.settings, "test") as other:
            with pytest.raises(PenstockError):
                await restore_stream(other.broker, copy, [pieces[0][: len(pieces[0]) // 2]])
    finally:
        broker.stop()


async def test_the_first_piece_waits_until_the_broker_listens_for_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a cluster, where the broker that answers learns last that another one takes the pieces."""
    await write(store, 3)
    pieces, taken, refused = list[bytes](), list[bytes](), 0
    copy = await copy_stream(store.broker, names.HISTORY, pieces.append)
    broker, late = store.broker, store.broker.new_inbox()
    request = broker.request

    async def answer(msg: Msg) -> None:
        taken.append(msg.data)
        await broker.publish(msg.reply, b"{}")

    async with AsyncExitStack() as listening:

        async def api(*_: object) -> dict[str, str]:
            return {"deliver_subject": late}

        async def counted(*args: Any) -> Msg:
            nonlocal refused
            try:
                return await request(*args)
            except NotFound:
                refused += 1
                if refused == 2:
                    await listening.enter_async_context(broker.listening(late, answer))
                raise

        monkeypatch.setattr(broker, "api", api)
        monkeypatch.setattr(broker, "request", counted)
        await restore_stream(broker, copy, pieces)
    assert [*pieces, b""] == taken
    assert refused == 2
