"""Operations on runs where several brokers have the log: what races is decided once, and every copy says
so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, NotFound
from penstock.engine.run.events import WorkflowCancelled, WorkflowStarted, decode
from penstock.engine.run.state import RunStatus
from tests.support.server import NODES, cluster
from tests.support.waiting import until
from tests.support.world import chain, register

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[list[Store]]:
    """One over each node."""
    with cluster(tmp_path) as nodes:
        await nodes.formed()
        async with AsyncExitStack() as stack:
            settings = [BrokerSettings(url=node.url, replicas=NODES) for node in nodes.nodes]
            opened = [await stack.enter_async_context(open_store(one, "test")) for one in settings]
            await provision(opened[0].broker, settings[0])
            yield opened


async def test_in_a_cluster_a_scheduled_run_either_starts_or_is_cancelled(stores: list[Store]) -> None:
    """They start one after the other from the first on, and are taken back from the last on, over all nodes."""
    definition, digest = await register(stores[0], chain("later", 1))
    first = datetime.now(UTC) + timedelta(seconds=5)
    begun = await asyncio.gather(
        *(
            run_operations.schedule(
                stores[n % NODES], definition, digest, Raw(b"1"), first + timedelta(milliseconds=2 * n)
            )
            for n in range(300)
        )
    )
    run_ids = [one.run_id for one in begun]
    assert datetime.now(UTC) < first, "the machine is too slow for this test"
    await until(lambda: _has_started(stores[0], run_ids[0]))
    taken_back = await _take_back(stores, run_ids[::-1])
    assert run_ids[0] not in taken_back
    assert run_ids[-1] in taken_back
    for run_id in run_ids:
        if run_id in taken_back:
            first, *rest = await _later_events(stores[1], run_id)
            assert first is WorkflowCancelled
            assert rest in (
                [],
                [WorkflowStarted],
            )  # it may have been on its way; of a run that has ended it changes nothing
            run = await run_operations.get(stores[2], run_id)
            assert (RunStatus.CANCELLED, 0) == (run.status, sum(step.attempts for step in run.steps.values()))
        else:
            await until(lambda: _has_started(stores[1], run_id))  # noqa: B023 - awaited at once
            assert [WorkflowStarted] == await _later_events(stores[2], run_id)


async def test_in_a_cluster_a_key_means_one_run_for_all_that_use_it(stores: list[Store]) -> None:
    definition, digest = await register(stores[0], chain("later", 1))
    at = datetime.now(UTC) + timedelta(days=1)
    begun = await asyncio.gather(
        *(run_operations.schedule(store, definition, digest, Raw(b"1"), at, "key") for store in stores * 10)
    )
    [run_id] = {one.run_id for one in begun}
    assert all(one.scheduled for one in begun)
    assert 1 == len(await stores[0].history.read(run_id))
    found = await asyncio.gather(
        *(run_operations.unschedule(store, run_id) for store in stores * 10), return_exceptions=True
    )
    assert 1 == found.count(None)
    assert {NotFound, type(None)} == {type(one) for one in found}
    with pytest.raises(Conflict):
        await run_operations.replay(stores[0], run_id)


async def _take_back(stores: Sequence[Store], run_ids: Sequence[str]) -> set[str]:
    """Those of which the answer was that they are cancelled."""
    taken, waiting = set[str](), iter(run_ids)

    async def one(store: Store) -> None:
        for run_id in waiting:
            try:
                await run_operations.unschedule(store, run_id)
                taken.add(run_id)
            except NotFound:
                pass

    await asyncio.gather(*map(one, stores))
    return taken


async def _has_started(store: Store, run_id: str) -> bool:
    return len(await store.history.read(run_id)) > 1


async def _later_events(store: Store, run_id: str) -> list[type]:
    return [type(decode(stored.data)) for stored in (await store.history.read(run_id))[1:]]
