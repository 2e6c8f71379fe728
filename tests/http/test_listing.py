from __future__ import annotations

from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor, Result

from penstock.actors.control.run_operations import now
from penstock.broker.store import Store
from penstock.engine.run.event_payloads import ParentRef, Started
from penstock.engine.run.events import WorkflowStarted
from penstock.engine.validation import parse
from tests.http.conftest import ONE_STEP

pytestmark = pytest.mark.usefixtures("index")


async def test_a_run_is_in_the_list_as_soon_as_it_was_answered(http: ASGIConductor) -> None:
    for _ in range(20):
        run_id = (await http.simulate_post("/runs", body=b'{"workflow":"one"}')).json["run_id"]
        assert run_id == (await http.simulate_get("/runs?limit=1")).json[0]["run_id"]


async def test_a_list_is_newest_first_and_of_one_workflow(http: ASGIConductor, store: Store) -> None:
    run_ids = await _fresh(http, store, "ordered", 7)
    found = (await http.simulate_get("/runs?workflow=ordered")).json
    assert list(reversed(run_ids)) == [run["run_id"] for run in found]
    assert sorted((run["created_at"] for run in found), reverse=True) == [run["created_at"] for run in found]
    assert {"ordered"} == {run["workflow_id"] for run in found}


async def test_a_cancelled_run_leaves_the_list_of_running_ones_at_once(http: ASGIConductor, store: Store) -> None:
    first, second = await _fresh(http, store, "changing", 2)
    await http.simulate_post(f"/runs/{first}/cancel")
    assert [second] == await _ids(http, "/runs?workflow=changing&status=running")
    assert [first] == await _ids(http, "/runs?workflow=changing&status=cancelled")
    assert [] == await _ids(http, "/runs?workflow=changing&status=completed")


async def test_bounds_of_time_belong_to_the_range(http: ASGIConductor, store: Store) -> None:
    run_ids = await _fresh(http, store, "timed", 3)
    times = {run["run_id"]: run["created_at"] for run in (await http.simulate_get("/runs?workflow=timed")).json}
    middle = times[run_ids[1]]
    assert [run_ids[2], run_ids[1]] == await _ids(http, f"/runs?workflow=timed&after={middle}")
    assert [run_ids[1], run_ids[0]] == await _ids(http, f"/runs?workflow=timed&before={middle}")
    assert [] == await _ids(http, "/runs?workflow=timed&before=2001-01-01T00:00:00Z")


async def test_links_lead_through_every_run_once(http: ASGIConductor, store: Store) -> None:
    run_ids = await _fresh(http, store, "paged", 10)
    found: list[str] = []
    url = "/runs?workflow=paged&limit=4"
    while url:
        answer = await http.simulate_get(url)
        assert len(answer.json) <= 4
        found += (run["run_id"] for run in answer.json)
        url = _next(answer)
    assert list(reversed(run_ids)) == found


async def test_large_runs_make_a_page_shorter_and_none_is_left_out(http: ASGIConductor, store: Store) -> None:
    await store.definitions.register(parse({**ONE_STEP, "name": "large"}))
    for _ in range(10):
        body = orjson.dumps({"workflow_id": "large", "inputs": ["x" * 200_000] * 35})
        assert 201 == (await http.simulate_post("/runs/bulk", body=body)).status_code
    first = await http.simulate_get("/runs?workflow=large")
    assert 0 < len(first.json) < 350
    rest = await http.simulate_get(_next(first))
    assert 350 == len({run["run_id"] for run in first.json + rest.json})


async def test_a_list_by_the_beginning_of_an_id_has_those_runs_alone(
    http: ASGIConductor, store: Store, index: None
) -> None:
    oldest, middle, newest = await _fresh(http, store, "begins", 3)
    while oldest[:8] != newest[:8]:  # the time in an id moves these on once in 65 s
        oldest, middle, newest = await _fresh(http, store, "begins", 3)
    shared = oldest[:8]
    keyed = orjson.dumps({"workflow": "begins"})
    other = (await http.simulate_post("/runs", body=keyed, headers={"Idempotency-Key": "k"})).json["run_id"]
    assert [middle] == await _ids(http, f"/runs?prefix={middle}")
    assert [other] == await _ids(http, f"/runs?prefix={other[:8]}&workflow=begins&status=running")
    assert [newest, middle, oldest] == await _ids(http, f"/runs?prefix={shared}&workflow=begins")
    first = await http.simulate_get(f"/runs?prefix={shared}&workflow=begins&limit=2")
    assert [newest, middle] == [run["run_id"] for run in first.json]
    assert [oldest] == await _ids(http, _next(first))
    assert [] == await _ids(http, f"/runs?prefix={middle}&workflow=elsewhere")
    assert [] == await _ids(http, f"/runs?prefix={middle}&status=failed")
    assert [] == await _ids(http, "/runs?prefix=ffffffff")


async def test_a_list_by_the_parent_has_its_children_alone(http: ASGIConductor, store: Store, index: None) -> None:
    [parent] = await _fresh(http, store, "begins", 1)
    digest = (await store.definitions.latest("begins"))[1]
    children = ["1" * 32, "2" * 32, "3" * 32]
    for number, child in enumerate(children):
        payload = Started("begins", "1", digest, parent=ParentRef(parent, f"m.{number}"))
        await store.history.append(WorkflowStarted(run_id=child, timestamp=now(), payload=payload))

    assert children[::-1] == await _ids(http, f"/runs?parent={parent}")
    first = await http.simulate_get(f"/runs?parent={parent}&limit=2")
    assert [{"run_id": parent, "step_id": "m.2"}, {"run_id": parent, "step_id": "m.1"}] == [
        run["parent"] for run in first.json
    ]
    assert children[:1] == await _ids(http, _next(first))
    assert children[1:2] == await _ids(http, f"/runs?parent={parent}&prefix=22222222&workflow=begins&status=running")
    assert [] == await _ids(http, f"/runs?parent={parent}&status=failed")
    assert [] == await _ids(http, f"/runs?parent={children[0]}")


BAD = {
    "parent=": "parent",
    "parent=me": "parent must be a run id",
    "prefix=": "prefix",
    "prefix=0123456": "prefix must be the first 8 to 32 characters of a run id",
    "prefix=0123456Z": "prefix",
    "prefix=01234567%25": "prefix",
    f"prefix={'0' * 33}": "prefix",
    "limit=0": "limit",
    "limit=10001": "limit",
    "limit=-1": "limit",
    "limit=1e3": "limit",
    "limit=": "limit",
    "limit=%C2%B2": "limit",
    "limit=1&limit=2": "limit is given 2 times",
    "status=done": "status",
    "status=": "status",
    "after=yesterday": "after",
    "before=2001-01-01": "before",
    "after=0001-01-01T00:00:00%2B14:00": "after",
    "workflow=": "workflow is empty",
    "workflow=a*": '"a*"',
    "workflow=a%00b": "workflow",
    "workflow=..": '".."',
    "cursor=x": "cursor",
    "cursor=9999999999999999999.0": "cursor",
    "colour=red": 'unknown query parameter "colour"',
}


@pytest.mark.parametrize("query", BAD)
async def test_a_bad_parameter_is_named(http: ASGIConductor, query: str) -> None:
    answer = await http.simulate_get(f"/runs?{query}")
    assert 400 == answer.status_code
    assert BAD[query] in answer.text


async def test_all_bad_parameters_are_named_at_once(http: ASGIConductor) -> None:
    answer = await http.simulate_get("/runs?limit=0&status=x&after=y&colour=red")
    assert 4 == len(answer.text.strip().splitlines())


async def _fresh(http: ASGIConductor, store: Store, workflow: str, count: int) -> list[str]:
    """Runs of a workflow that no other test uses, oldest first."""
    await store.definitions.register(parse({**ONE_STEP, "name": workflow}))
    body = orjson.dumps({"workflow": workflow})
    return [(await http.simulate_post("/runs", body=body)).json["run_id"] for _ in range(count)]


async def _ids(http: ASGIConductor, url: str) -> list[str]:
    found: list[dict[str, Any]] = (await http.simulate_get(url)).json
    return [run["run_id"] for run in found]


def _next(answer: Result) -> str:
    link = answer.headers.get("link")
    if link is None:
        return ""
    assert link.endswith('>; rel="next"')
    return str(link[1:].partition(">")[0])
