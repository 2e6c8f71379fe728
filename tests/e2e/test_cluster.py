"""Engine, API and workers as processes of their own over three brokers that replicate: one of them dies, and nothing is
lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.client import Client
from penstock.engine.errors import PenstockError
from tests.e2e.parts import Parts, all_completed, define, in_the_middle, parts
from tests.support.server import NODES, Cluster, Server, cluster
from tests.support.waiting import until, until_true

pytestmark = pytest.mark.timeout(150)

RUNS = 300
PAUSE_S = 0.03
TASK = "cluster.echo"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path) as found:
        asyncio.run(found.formed())
        yield found


@pytest.fixture
def settings() -> dict[str, str]:
    return {}


@pytest.fixture
def running(nodes: Cluster, tmp_path: Path, settings: dict[str, str]) -> Iterator[Parts]:
    environ = {"SERVICE_BROKER_URL": nodes.url, "SERVICE_REPLICAS": str(NODES), **settings}
    with parts(tmp_path, environ) as started:
        started.worker(TASK)
        define(started, "cluster", TASK)
        yield started


@pytest.fixture
async def store(nodes: Cluster, running: Parts) -> AsyncIterator[Store]:
    async with open_store(nodes.settings, "test") as opened:
        yield opened


async def test_every_acknowledged_run_completes_when_the_leader_of_the_history_is_killed(
    nodes: Cluster, running: Parts, store: Store
) -> None:
    acknowledged = list(await asyncio.to_thread(running.bulk, "cluster", RUNS))
    await in_the_middle(store, acknowledged)
    enough = threading.Event()
    starting = asyncio.create_task(asyncio.to_thread(start_until, enough, running, acknowledged))
    try:
        leader = await nodes.leader(names.HISTORY)
        leader.kill()
        await until(lambda: led_by_another(nodes, leader))
        before = len(acknowledged)
        await until_true(lambda: len(acknowledged) >= before + 20)
    finally:
        enough.set()
    await starting
    await all_completed(store, acknowledged)
    assert NODES - 1 == sum(node.running for node in nodes.nodes)
    leader.start()
    await until(
        leader.healthy
    )  # before it has its copy of every consumer, two nodes would be missing if another one went
    (await nodes.leader(names.HISTORY)).kill()
    again = list(await asyncio.to_thread(running.bulk_patiently, "cluster", 20))
    await all_completed(store, again)
    assert running.alive()


@pytest.mark.parametrize("settings", [{"SERVICE_ARCHIVE_AFTER": "1s"}])
async def test_runs_are_archived_and_read_as_before(running: Parts, store: Store) -> None:
    run_ids = list(await asyncio.to_thread(running.bulk, "cluster", RUNS))
    await until(lambda: are_archived(store, run_ids), 60)
    with Client(running.url) as client:
        for run_id in (run_ids[0], run_ids[-1]):
            assert "completed" == client.get_run(run_id).status
            types = [event.type for event in client.events(run_id)]
            assert ("workflow.started", "workflow.completed") == (types[0], types[-1])
        assert {*run_ids} <= {run.run_id for run in client.runs(workflow="cluster", limit=RUNS)}


async def are_archived(store: Store, run_ids: list[str]) -> bool:
    """Whether nothing of these runs is left in the history. A copy may answer, which does not have their start yet."""
    return await store.archive.tip() >= len(run_ids) and not await store.history.last_of(run_ids)


def start_until(enough: threading.Event, running: Parts, acknowledged: list[str]) -> None:
    """Start runs one by one, whatever happens meanwhile; not so many that two nodes have minutes to do with them."""
    with Client(running.url) as client:
        while not enough.wait(PAUSE_S):
            with suppress(PenstockError):  # not acknowledged: it may have been started or not
                acknowledged.append(client.start("cluster", b"1").run_id)


async def led_by_another(nodes: Cluster, former: Server) -> bool:
    try:
        return await nodes.leader(names.HISTORY) is not former
    except (PenstockError, KeyError, RuntimeError):  # there is none at this moment
        return False
