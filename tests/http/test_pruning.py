"""Ended runs removed by one request: exactly those that match."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor, Result
from uuid_utils import uuid4

from penstock.broker.store import Store
from penstock.engine.run.state import from_snapshot
from penstock.engine.validation import parse
from tests.http.conftest import ONE_STEP
from tests.http.test_bulk_cancel import shard as shard
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("index", "shard")

CREATED = "2026-01-01T00:00:00Z"


@pytest.fixture
async def workflow(store: Store) -> str:
    name = f"w{uuid4().hex}"
    await store.definitions.register(parse({**ONE_STEP, "name": name}))
    return name


async def test_runs_that_have_ended_are_removed_and_others_stay(
    http: ASGIConductor, store: Store, workflow: str
) -> None:
    [running], old = await _start(http, workflow, 1), await _cancelled(http, store, workflow, 2)
    answer = await _prune(http, workflow_id=workflow)
    assert (200, sorted(old), [], 2, False) == (
        answer.status_code,
        sorted(answer.json["pruned"]),
        answer.json["skipped"],
        answer.json["total"],
        answer.json["dry_run"],
    )
    assert [404, 404] == [(await http.simulate_get(f"/runs/{run_id}")).status_code for run_id in old]
    assert [running] == [one["run_id"] for one in (await http.simulate_get(f"/runs?workflow={workflow}")).json]
    assert 404 == (await http.simulate_post(f"/runs/{old[0]}/rerun")).status_code
    assert 0 == (await _prune(http, workflow_id=workflow)).json["total"]


async def test_a_dry_run_lists_what_would_go_and_removes_nothing(
    http: ASGIConductor, store: Store, workflow: str
) -> None:
    [run_id] = await _cancelled(http, store, workflow, 1)
    answer = (await _prune(http, workflow_id=workflow, dry_run=True)).json
    assert ([run_id], True) == (answer["pruned"], answer["dry_run"])
    assert 200 == (await http.simulate_get(f"/runs/{run_id}")).status_code


@pytest.mark.parametrize(
    ("matching", "count"),
    [
        ({"status": "cancelled"}, 1),
        ({"status": "failed"}, 0),
        ({"status": "all"}, 1),
        ({"labels": {"team": "a"}}, 1),
        ({"labels": {"team": "b"}}, 0),
        ({"ended_before": CREATED}, 0),
        ({"ended_before": "2099-01-01T00:00:00+01:00"}, 1),
        ({"after": "2099-01-01T00:00:00Z"}, 0),
        ({"before": CREATED}, 0),
    ],
)
async def test_each_condition_counts(
    http: ASGIConductor, store: Store, workflow: str, matching: dict[str, Any], count: int
) -> None:
    await _cancelled(http, store, workflow, 1, labels={"team": "a"})
    answer = (await _prune(http, workflow_id=workflow, dry_run=True, **matching)).json
    assert (count, count) == (answer["total"], len(answer["pruned"]))


async def test_parts_continue_where_the_last_one_ended(http: ASGIConductor, store: Store, workflow: str) -> None:
    old = await _cancelled(http, store, workflow, 3)
    first = (await _prune(http, workflow_id=workflow, limit=2)).json
    assert (2, 1) == (len(first["pruned"]), first["remaining"])
    second = (await _prune(http, workflow_id=workflow, limit=2, cursor=first["next"])).json
    assert sorted(old) == sorted([*first["pruned"], *second["pruned"]])
    assert "next" not in second


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "no condition"),
        ({"dry_run": True}, "no condition"),
        ({"status": "running"}, "status"),
        ({"ended_before": "long ago"}, "ended_before"),
        ({"status": "all", "cursor": "1.a"}, "cursor goes with limit only"),
        ({"workflow_id": 1}, "workflow_id"),
        ({"status": "all", "older_than": "1d"}, "older_than"),
        ({"status": "all", "limit": 0}, "limit"),
    ],
)
async def test_a_bad_request_is_named_and_removes_nothing(
    http: ASGIConductor, store: Store, workflow: str, body: dict[str, object], named: str
) -> None:
    [run_id] = await _cancelled(http, store, workflow, 1)
    answer = await _prune(http, **body)
    assert (400, True) == (answer.status_code, named in answer.text), answer.text
    assert 200 == (await http.simulate_get(f"/runs/{run_id}")).status_code


async def _prune(http: ASGIConductor, **body: object) -> Result:
    found: Result = await http.simulate_post("/runs/prune", body=orjson.dumps(body))
    return found


async def _start(http: ASGIConductor, workflow: str, number: int, **more: object) -> list[str]:
    body = orjson.dumps({"workflow": workflow, **more})
    return [(await http.simulate_post("/runs", body=body)).json["run_id"] for _ in range(number)]


async def _cancelled(http: ASGIConductor, store: Store, workflow: str, number: int, **more: object) -> list[str]:
    """So many runs, whose shard has written their end."""
    run_ids = await _start(http, workflow, number, **more)
    for run_id in run_ids:
        await http.simulate_post(f"/runs/{run_id}/cancel")

    async def are_saved() -> bool:
        entries = (await store.runs.get_many(run_ids)).values()
        return number == sum(from_snapshot(entry.value).ended for entry in entries)

    await until(are_saved)
    return run_ids
