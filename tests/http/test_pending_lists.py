"""Lists and numbers of runs that wait for their limits, and bulk operations on them."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from falcon.testing import ASGIConductor
from uuid_utils import uuid4

from penstock.actors.control.run_operations import get
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.settings import BrokerSettings
from penstock.engine.run.state import RunStatus
from tests.support.waiting import until, until_true
from tests.support.world import Echo, chain, echo, ended, register

pytestmark = pytest.mark.usefixtures("index")


async def test_runs_that_wait_for_a_limit_are_pending_in_lists_and_numbers(
    http: ASGIConductor, store: Store, broker_settings: BrokerSettings
) -> None:
    name, begun, go, later = f"w{uuid4().hex}", list[str](), asyncio.Event(), asyncio.Event()

    async def answer(worker: Echo, task: TaskPayload) -> None:
        begun.append(task.run_id)
        await (go if len(begun) == 1 else later).wait()
        await worker.complete(task)

    await register(store, {**chain(name, 1), "concurrency": [{"limit": 1}]})
    async with (
        open_store(broker_settings, "shard") as own,
        open_shard(own, new_member("shard")),
        echo(store, f"{name}.echo", answer),
    ):
        first = await _started(http, name)
        await until_true(lambda: begun == [first])
        second, third = await _started(http, name), await _started(http, name)

        assert [third, second] == await _listed(http, name, "pending")
        assert [first] == await _listed(http, name, "running")
        assert {"running": 1, "pending": 2} == await _counts(http, name)

        go.set()
        assert (await ended(store, first)).error is None
        await until_true(lambda: len(begun) == 2)
        (now,) = await _listed(http, name, "running")
        (waits,) = await _listed(http, name, "pending")
        assert ({second, third}, begun[1]) == ({now, waits}, now)
        assert {"completed": 1, "running": 1, "pending": 1} == await _counts(http, name)

        rerun = (await http.simulate_post(f"/runs/{first}/rerun")).json["run_id"]
        assert [rerun, waits] == await _listed(http, name, "pending")
        body = orjson.dumps({"workflow_id": name, "status": "pending"})
        assert [rerun, waits] == (await http.simulate_post("/runs/cancel", body=body)).json["cancelled"]
        assert [] == await _listed(http, name, "pending")
        assert {"completed": 1, "running": 1, "cancelled": 2} == await _counts(http, name)
        later.set()
        await ended(store, now)


async def test_a_run_is_pending_in_lists_until_the_last_of_its_limits_and_again_when_it_is_to_go_on(
    http: ASGIConductor, store: Store, broker_settings: BrokerSettings
) -> None:
    name, begun, go, later = f"w{uuid4().hex}", list[str](), asyncio.Event(), asyncio.Event()

    async def answer(worker: Echo, task: TaskPayload) -> None:
        begun.append(task.run_id)
        if len(begun) == 1:
            await go.wait()
            await worker.fail(task, "no", "non_retriable")
        else:
            await later.wait()
            await worker.complete(task)

    limits = [{"limit": 9, "scope": f"a-{name}"}, {"limit": 1, "scope": f"b-{name}"}]
    await register(store, {**chain(name, 1), "concurrency": limits})
    async with (
        open_store(broker_settings, "shard") as own,
        open_shard(own, new_member("shard")),
        echo(store, f"{name}.echo", answer),
    ):
        first = await _started(http, name)
        await until_true(lambda: begun == [first])
        second = await _started(http, name)
        await until(lambda: _has_one_slot(store, second))
        third = await _started(http, name)  # the lists after it know of all that was stored before
        assert [third, second] == await _listed(http, name, "pending")

        assert 200 == (await http.simulate_post(f"/runs/{third}/cancel")).status_code
        go.set()
        assert RunStatus.FAILED is (await ended(store, first)).status
        await until_true(lambda: begun == [first, second])
        assert 200 == (await http.simulate_post(f"/runs/{first}/retry")).status_code
        assert [first] == await _listed(http, name, "pending")
        assert [second] == await _listed(http, name, "running")
        later.set()
        assert RunStatus.COMPLETED is (await ended(store, second)).status
        assert RunStatus.COMPLETED is (await ended(store, first)).status


async def _has_one_slot(store: Store, run_id: str) -> bool:
    return [slot.number for slot in (await get(store, run_id)).slots.values()] == [1]


async def _started(http: ASGIConductor, workflow: str) -> str:
    answer = await http.simulate_post("/runs", body=orjson.dumps({"workflow": workflow}))
    return str(answer.json["run_id"])


async def _listed(http: ASGIConductor, workflow: str, status: str) -> list[str]:
    answer = await http.simulate_get(f"/runs?workflow={workflow}&status={status}")
    assert 200 == answer.status_code, answer.text
    assert {status} >= {run["status"] for run in answer.json}
    return [run["run_id"] for run in answer.json]


async def _counts(http: ASGIConductor, workflow: str) -> dict[str, int]:
    answer = (await http.simulate_get(f"/runs/stats?workflow={workflow}")).json
    counts: dict[str, int] = answer["buckets"][0]["counts"]
    return counts
