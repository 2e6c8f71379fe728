"""A store without room: nothing that was acknowledged is lost, what is new is refused at once, and all goes on when
there is room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw
from structlog.testing import capture_logs

from penstock.actors.control import run_operations
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.limits import MIB
from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.errors import Full
from penstock.engine.run.state import RunStatus
from tests.support.little_room import FULL, fill, make_room, small_broker
from tests.support.own_broker import OwnBroker
from tests.support.waiting import until_true
from tests.support.world import chain, echo, ended, register

RUNS = 200


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[tuple[OwnBroker, Store]]:
    """A broker with little room, and a connection to it."""
    with small_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            yield broker, store


async def refused(store: Store, definition: WorkflowDef, digest: str) -> list[str]:
    """What is said to each kind of start."""
    later = datetime.now(UTC) + timedelta(hours=1)
    tries = (
        run_operations.start(store, definition, digest, Raw(b"1")),
        run_operations.start(store, definition, digest, Raw(b"1"), "key"),
        run_operations.start_all(store, definition, digest, [Raw(b"1"), Raw(b"2")]),
        run_operations.schedule(store, definition, digest, Raw(b"1"), later),
        store.signals.put("r.more", b"1"),
    )
    found = await asyncio.gather(*tries, return_exceptions=True)
    assert {type(one) for one in found} == {Full}
    return [str(one) for one in found]


async def test_runs_in_flight_wait_for_room_and_complete_when_there_is_some(small: tuple[OwnBroker, Store]) -> None:
    broker, store = small
    definition, digest = await register(store, chain("full"))
    async with open_store(broker.settings, "shard") as own, open_shard(own, new_member("shard")):
        run_ids = await run_operations.start_all(store, definition, digest, [Raw(b"%d" % n) for n in range(RUNS)])
        await until_true(lambda: own.publisher.in_flight == 0)
        await fill(store)
        with capture_logs() as logs:
            assert set(await refused(store, definition, digest)) == {FULL}
            async with echo(store, "full.echo") as worker:
                await until_true(lambda: len(worker.seen) == RUNS and store.publisher.in_flight > 0)
                await make_room(store)
                runs = [await ended(store, run_id) for run_id in run_ids]
        assert await run_operations.start(store, definition, digest, Raw(b"1"))
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    assert len(worker.seen) == 3 * RUNS
    assert sum(line["event"] == "broker_refused" for line in logs) <= 2


async def test_a_larger_store_after_a_restart_lets_everything_go_on(small: tuple[OwnBroker, Store]) -> None:
    broker, store = small
    definition, digest = await register(store, chain("larger"))
    async with open_store(broker.settings, "shard") as own, open_shard(own, new_member("shard")):
        run_ids = await run_operations.start_all(store, definition, digest, [Raw(b"%d" % n) for n in range(RUNS)])
        await fill(store)
        await refused(store, definition, digest)
        broker.stop()
        broker.settings = msgspec.structs.replace(broker.settings, max_store_bytes=64 * MIB)
        broker.start()
        await until_true(lambda: store.broker.reconnects > 0 and store.broker.connected)
        async with echo(store, "larger.echo"):
            runs = [await ended(store, run_id, 40) for run_id in run_ids]
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
