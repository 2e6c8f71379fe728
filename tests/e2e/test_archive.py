"""`archive_after` against a whole service: every read of an archived run is, byte for byte, what it was before.
A replay brings it back, and whatever process dies at whatever moment, nothing is lost."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from penstock.broker.records import run_data
from penstock.broker.store import Store, open_store
from penstock.config.limits import BULK_RUNS_MAX
from penstock.config.process.crash_points import Point
from penstock.config.settings import BrokerSettings
from penstock.http.messages.responses import INDEX_LAG
from tests.e2e.conftest import StartService
from tests.e2e.crash_scenarios import begun, registered, step
from tests.e2e.test_backup import restore
from tests.support.crashing import Place, World, place, world
from tests.support.service import Service
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(240)

AFTER = "1s"
LOOPS = {"name": "naps", "steps": [{"id": f"s{n}", "type": "sleep", "config": {"duration": "1ms"}} for n in range(3)]}
ASKS = {"name": "asks", "steps": [{"id": "ok", "type": "approval", "config": {"timeout": "300ms"}}]}
PATHS = (
    "/runs/{}",
    "/runs/{}/events",
    "/runs/{}/graph",
    "/runs/{}/export",
    "/runs/{}/explain",
    "/runs/{}/logs",
)


@asynccontextmanager
async def looking(service: Service) -> AsyncIterator[tuple[httpx2.AsyncClient, Store]]:
    """A client of the service, and what is in its store."""
    async with (
        httpx2.AsyncClient(base_url=service.url, timeout=20) as http,
        open_store(BrokerSettings(url=service.broker_url), "test") as store,
    ):
        yield http, store


async def started(http: httpx2.AsyncClient, workflow: dict[str, Any], number: int) -> str:
    await http.post("/workflows", json=workflow)
    body = {"workflow": workflow["name"], "input": {"number": number}, "labels": {"team": "red"}}
    return str((await http.post("/runs", json=body)).json()["run_id"])


async def has_ended(http: httpx2.AsyncClient, run_id: str) -> bool:
    return (await http.get(f"/runs/{run_id}")).json()["status"] in ("completed", "failed", "cancelled")


async def archived(store: Store, run_ids: list[str]) -> None:
    """Return when nothing of these runs is in the history or among the snapshots."""

    async def are_gone() -> bool:
        return not await store.history.last_of(run_ids) and not await store.runs.get_many(run_ids)

    await until(are_gone, 60)


async def reads(http: httpx2.AsyncClient, run_ids: list[str]) -> dict[str, tuple[int, bytes]]:
    """Everything that can be read of these runs."""
    one, other = run_ids[0], run_ids[-1]
    last = [max(event["seq"] for event in (await http.get(f"/runs/{one}/events")).json()) for one in run_ids]
    paths = [path.format(run_id) for path in PATHS for run_id in run_ids]
    paths += [f"/runs/{run_id}?at={seq - 1}" for run_id, seq in zip(run_ids, last, strict=True)]
    paths += [f"/runs/{run_id}?wait_ms=10&payload_max=1" for run_id in run_ids]
    paths += [f"/runs/{one}/events?after={last[0] - 2}", f"/runs/{one}/diff/{other}", f"/runs/{one}/steps/s1/input"]
    paths += [
        "/runs?limit=2",
        "/runs?status=failed",
        "/runs?label=team:red",
        f"/runs?q={one[:20]}",
        "/runs?workflow=naps",
    ]
    paths += ["/runs/stats", "/runs/stats?by=workflow"]
    found = {}
    for path in paths:
        answer = await http.get(path)
        found[path] = answer.status_code, answer.content
    streamed = await http.get(f"/runs/{one}/events", headers={"Accept": "text/event-stream"})
    return {**found, "streamed": (streamed.status_code, streamed.content)}


async def caught_up(http: httpx2.AsyncClient) -> bool:
    answer = await http.get("/runs")
    return answer.status_code == 200 and answer.headers[INDEX_LAG].startswith("0;")


async def test_every_read_of_an_archived_run_is_as_before(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=1)
    async with looking(service) as (http, store):
        run_ids = [await started(http, LOOPS, number) for number in range(3)] + [await started(http, ASKS, 4)]
        for run_id in run_ids:
            await until(lambda run_id=run_id: has_ended(http, run_id))
        await until(lambda: caught_up(http))
        before = await reads(http, run_ids)
        assert not {path: found for path, found in before.items() if found[0] != 200}
    service.stop()
    service._settings["archive_after"] = AFTER
    service.start()
    async with looking(service) as (http, store):
        await archived(store, run_ids)
        assert before == await reads(http, run_ids)
    service.stop()
    shutil.rmtree(service.directory / "data" / "index")
    del service._settings["archive_after"]
    service.start()
    async with looking(service) as (http, store):
        await until(lambda: caught_up(http))
        assert before == await reads(http, run_ids)
        assert 404 == (await http.get(f"/runs/{'0' * 32}")).status_code
        copy = (await http.post(f"/runs/{run_ids[0]}/rerun", json={"from": "s1"})).json()["run_id"]
        await until(lambda: has_ended(http, copy))
        many = (await http.post("/runs/rerun", json={"workflow_id": "naps", "status": "completed"})).json()
        assert (4, []) == (many["total"], many["skipped"])
        failed = run_ids[3]
        assert 200 == (await http.post("/runs/retry", json={"workflow_id": "asks", "mode": "replay"})).status_code
        assert "workflow.resumed" in [event["type"] for event in (await http.get(f"/runs/{failed}/events")).json()]
        done = await http.post(f"/runs/{failed}/steps/ok/skip", json={"output": 1})
        assert 200 == done.status_code, done.text
        await until(lambda: has_ended(http, failed))
        assert "completed" == (await http.get(f"/runs/{failed}")).json()["status"]
        ended = {"workflow_id": "naps", "status": "completed"}
        await until(lambda: is_pruned(http, ended, run_ids[:3]), 60)


async def is_pruned(http: httpx2.AsyncClient, wanted: dict[str, str], run_ids: list[str]) -> bool:
    """Whether a request to prune, which is repeated, has removed these runs."""
    assert 200 == (await http.post("/runs/prune", json=wanted)).status_code
    return all([(await http.get(f"/runs/{run_id}")).status_code == 404 for run_id in run_ids])


def test_a_backup_has_archived_runs(start_service: StartService, tmp_path: Path) -> None:
    service = start_service(shards=1, http_workers=1, archive_after=AFTER)

    async def archive() -> tuple[list[str], dict[str, tuple[int, bytes]]]:
        async with looking(service) as (http, store):
            run_ids = [await started(http, LOOPS, 1), await started(http, ASKS, 2)]
            await archived(store, run_ids)
            return run_ids, await reads(http, run_ids)

    run_ids, before = asyncio.run(archive())
    made = service.penstock("backup", str(tmp_path / "backup"))
    assert 0 == made.returncode, made.stderr
    service.stop()
    shutil.rmtree(service.directory / "data")
    restored = restore(service, tmp_path / "backup")
    assert 0 == restored.returncode, restored.stderr
    service.start()

    async def look() -> None:
        async with looking(service) as (http, _):
            await until(lambda: caught_up(http))
            assert before == await reads(http, run_ids)

    asyncio.run(look())


@pytest.fixture(scope="module")
def archiving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service that archives at once, and a worker."""
    with place(tmp_path_factory.mktemp("archiving"), archive_after=AFTER) as found:
        found.start_worker()
        yield found


ARCHIVE_POINTS: tuple[Point, ...] = (
    "archive.stored",
    "archive.marked",
    "run.snapshot_put_away",
    "run.events_put_away",
    "shard.run_put_away",
    "run.brought_back",
)
FILLED = 12 * run_data.APART  # events that are stored while a run waits: more than it has itself, so many times


@pytest.mark.parametrize("point", ARCHIVE_POINTS)
async def test_a_death_while_a_run_is_archived_or_brought_back_changes_nothing(archiving: Place, point: Point) -> None:
    async with world(archiving) as at_hand:
        expected = await there_and_back(at_hand, f"{point}-in-peace")
        archiving.arm(point, 1)
        try:
            found = await there_and_back(at_hand, point)
            await archiving.died(point)
        finally:
            archiving.forget(point)
    assert expected == found


async def there_and_back(at_hand: World, name: str) -> list[tuple[str, list[str], dict[str, int]]]:
    """What a run is that fails, is archived, is replayed, completes and is archived again: after each archiving. Many
    other runs are started between its first event and its last one."""
    run_id = await begun(at_hand, name, step("crash.signalled"), step("crash.fatal", 1))
    await registered(at_hand, f"{name}-others", step("crash.nobody"))
    others = {"workflow_id": f"{name}-others", "inputs": [1] * BULK_RUNS_MAX}
    for number in range(FILLED // BULK_RUNS_MAX):
        await at_hand.ask("POST", "/runs/bulk", json=others, headers={"Idempotency-Key": f"{name}-{number}"})
    await until(lambda: waits_for_signal(at_hand, run_id))
    await at_hand.ask("POST", f"/runs/{run_id}/signal/go", content=b"5")
    found = []
    await archived(at_hand.store, [run_id])
    found.append(await shown(at_hand, name, run_id))
    await at_hand.ask("POST", f"/runs/{run_id}/retry", 409, json={})
    await until(lambda: is_completed(at_hand, run_id), 60)
    await archived(at_hand.store, [run_id])
    found.append(await shown(at_hand, name, run_id))
    return found


async def waits_for_signal(at_hand: World, run_id: str) -> bool:
    events = (await at_hand.ask("GET", f"/runs/{run_id}/events")).json()
    return "step.started" in [event["type"] for event in events]


async def is_completed(at_hand: World, run_id: str) -> bool:
    return bool((await at_hand.ask("GET", f"/runs/{run_id}")).json()["status"] == "completed")


async def shown(at_hand: World, name: str, run_id: str) -> tuple[str, list[str], dict[str, int]]:
    run = (await at_hand.ask("GET", f"/runs/{run_id}")).json()
    events = (await at_hand.ask("GET", f"/runs/{run_id}/events")).json()
    listed = await until(lambda: at_hand._listed(name))
    assert listed is not None
    assert [run_id] == [one["run_id"] for one in listed.json()]
    attempts = {step_id: each["attempts"] for step_id, each in run["steps"].items()}
    types = [event["type"] for event in events]
    types.remove("signal.received")  # before the answer of the step that got it, or behind
    return run["status"], types, attempts
