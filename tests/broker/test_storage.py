"""Whether a broker stores: what is asked of it, and tried out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker import names
from penstock.broker.store import open_store
from penstock.broker.streams.provisioning import provision
from penstock.broker.streams.storage import check_writes, stopped
from penstock.engine.errors import Full, Unavailable
from tests.support.file_limits import limited
from tests.support.little_room import fill, small_broker
from tests.support.own_broker import OwnBroker, own_broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OwnBroker]:
    with own_broker(tmp_path) as one:
        yield one


@pytest.mark.parametrize("stream", [names.HISTORY, names.bucket_stream(names.SIGNALS)])
async def test_a_stream_whose_write_failed_once_is_found_until_the_broker_is_started_again(
    broker: OwnBroker, stream: str
) -> None:
    subject = {names.HISTORY: names.history_subject("r")}.get(stream, names.key_subject(names.SIGNALS, "r.go"))
    async with open_store(broker.settings, "test") as store:
        await provision(store.broker, broker.settings)
        await store.broker.request(subject, b"kept")
        assert await stopped(broker.settings) is None
        with limited([broker.pid], 1), pytest.raises(Unavailable):
            await store.broker.request(subject, b"lost", 0.5)
        with pytest.raises(Unavailable):  # there is room again, and it takes nothing all the same
            await store.broker.request(subject, b"lost", 0.5)
        assert f"/{stream}/msgs/1.blk: file too large" in (await stopped(broker.settings) or "")
        await check_writes(store.broker)  # other streams go on
    broker.restart()
    assert await stopped(broker.settings) is None
    async with open_store(broker.settings, "test") as store:
        assert (await store.broker.api(f"STREAM.INFO.{stream}"))["state"]["messages"] == 1


async def test_a_store_without_room_is_full_and_not_stopped(tmp_path: Path) -> None:
    with small_broker(tmp_path) as small:
        async with open_store(small.settings, "test") as store:
            await provision(store.broker, small.settings)
            await fill(store)
            with pytest.raises(Full):
                await check_writes(store.broker)
        assert await stopped(small.settings) is None


async def test_a_broker_that_is_away_is_no_broken_one(broker: OwnBroker) -> None:
    broker.stop()
    with pytest.raises(Unavailable):
        await stopped(broker.settings)
