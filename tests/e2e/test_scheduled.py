"""Scheduled runs over the life of the whole service: their time comes, whatever of ours is up then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import orjson
import pytest

from penstock.broker.store import Store, open_store
from penstock.client import Client
from penstock.config.settings import BrokerSettings
from tests.e2e.conftest import StartService
from tests.support.own_broker import own_broker
from tests.support.service import Service
from tests.support.waiting import until, until_true
from tests.support.world import Echo, chain, echo

WORKFLOW = "later"
RUNS = 20


@asynccontextmanager
async def working(service: Service) -> AsyncIterator[tuple[Store, Echo]]:
    """A worker of the test's own."""
    async with (
        open_store(BrokerSettings(url=service.broker_url), "test") as store,
        echo(store, f"{WORKFLOW}.echo") as worker,
    ):
        yield store, worker


def scheduled(client: Client, run_at: datetime, count: int = RUNS) -> list[str]:
    client.register(orjson.dumps(chain(WORKFLOW, 1)))
    return [client.start(WORKFLOW, b"%d" % number, run_at=run_at.isoformat()).run_id for number in range(count)]


async def completed(service: Service, run_ids: Sequence[str]) -> None:
    """Every run ends well, with its own input."""
    async with httpx2.AsyncClient(base_url=service.url, trust_env=False, timeout=40) as client:
        for number, run_id in enumerate(run_ids):
            run = (await client.get(f"/runs/{run_id}", params={"wait_ms": 30_000})).json()
            assert ("completed", number, number) == (run["status"], run["input"], run["steps"]["s0"]["output"])


async def test_a_time_that_came_while_all_was_dead_is_made_up_for_at_the_restart(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=1)
    due = datetime.now(UTC) + timedelta(seconds=3)
    with service.client() as client:
        run_ids = scheduled(client, due)
        later = scheduled(client, due + timedelta(seconds=8), 1)
    service.kill_all()
    await until_true(lambda: datetime.now(UTC) > due)
    service.start()
    async with working(service) as (store, worker):
        await completed(service, [*run_ids])
        for run_id in run_ids:
            scheduled_, started, *_ = await store.history.read(run_id)
            assert scheduled_.at < due.timestamp() < started.at
        await completed(service, later)
        assert RUNS + 1 == len(worker.seen)
    assert (await started_at(service, later[0])) - (due.timestamp() + 8) < 1


async def started_at(service: Service, run_id: str) -> float:
    async with open_store(BrokerSettings(url=service.broker_url), "test") as store:
        return (await store.history.read(run_id))[1].at


async def test_a_run_starts_in_time_though_only_the_broker_is_up(tmp_path: Path, start_service: StartService) -> None:
    with own_broker(tmp_path / "broker") as broker:
        service = start_service(shards=1, http_workers=1, broker_url=broker.settings.url)
        due = datetime.now(UTC) + timedelta(seconds=2.5)
        with service.client() as client:
            run_ids = scheduled(client, due)
        service.kill_all()
        async with open_store(broker.settings, "test") as store:
            await until(lambda: _all_started(store, run_ids))
            assert datetime.now(UTC) > due
            for run_id in run_ids:
                assert 0 <= (await store.history.read(run_id))[1].at - due.timestamp() < 0.5
            service.start()
            async with echo(store, f"{WORKFLOW}.echo") as worker:
                await completed(service, run_ids)
        assert [1] * RUNS == list(worker.seen.values())


@pytest.mark.timeout(120)
async def test_what_is_deleted_while_it_falls_due_either_runs_or_never_does(start_service: StartService) -> None:
    """They start one after the other from the first on, and are deleted from the last on; a worker sees which of them
    ran."""
    service = start_service(shards=2, http_workers=2)
    first = datetime.now(UTC) + timedelta(seconds=12)
    async with (
        working(service) as (store, worker),
        httpx2.AsyncClient(base_url=service.url, trust_env=False, timeout=30) as client,
    ):
        await client.post("/workflows", json=chain(WORKFLOW, 1))
        run_ids = await _spaced(client, first, 500)
        assert datetime.now(UTC) < first, "the machine is too slow for this test"
        await until(lambda: _all_started(store, run_ids[:1]))
        deleted = await _delete(client, run_ids[::-1])
        ran = [run_id for run_id in run_ids if run_id not in deleted]
        assert run_ids[0] in ran
        assert run_ids[-1] in deleted
        for run_id in ran:
            assert "completed" == (await client.get(f"/runs/{run_id}", params={"wait_ms": 30_000})).json()["status"]
        for run_id in deleted:
            run = (await client.get(f"/runs/{run_id}")).json()
            assert ("cancelled", False) == (run["status"], "started_at" in run)
        assert {f"{run_id}.s0" for run_id in ran} == set(worker.seen)


async def test_the_command_line_schedules_shows_and_takes_back(service: Service) -> None:
    with service.client() as client:
        client.register(orjson.dumps(chain(WORKFLOW, 1)))
    run_id = service.penstock("run", "start", WORKFLOW, "--at", "2099-01-01T00:00:00Z").stdout.strip()
    assert "2099-01-01T00:00:00Z" in service.penstock("run", "scheduled", run_id).stdout
    assert f"{run_id} cancelled\n" == service.penstock("run", "unschedule", run_id).stdout
    assert 1 == service.penstock("run", "scheduled", run_id).returncode


async def _spaced(client: httpx2.AsyncClient, first: datetime, count: int) -> list[str]:
    """Runs that fall due 1 ms apart."""
    gate = asyncio.Semaphore(16)

    async def one(number: int) -> str:
        async with gate:
            run_at = (first + timedelta(milliseconds=number)).isoformat()
            return str((await client.post("/runs", json={"workflow": WORKFLOW, "run_at": run_at})).json()["run_id"])

    return await asyncio.gather(*map(one, range(count)))


async def _delete(client: httpx2.AsyncClient, run_ids: Sequence[str]) -> set[str]:
    """Those that the service says it has cancelled."""
    deleted, waiting = set[str](), iter(run_ids)

    async def deleter() -> None:
        for run_id in waiting:
            if (await client.delete(f"/runs/{run_id}/scheduled")).status_code == 200:
                deleted.add(run_id)

    await asyncio.gather(*(deleter() for _ in range(8)))
    return deleted


async def _all_started(store: Store, run_ids: Sequence[str]) -> bool:
    return all([len(await store.history.read(run_id)) > 1 for run_id in run_ids])
