"""Lists, numbers and bulk operations of runs that are paused, or that are not."""

from __future__ import annotations

from urllib.parse import quote

import orjson
import pytest
from falcon.testing import ASGIConductor, Result
from msgspec import Raw
from uuid_utils import uuid4

from penstock.actors.control.run_operations import now
from penstock.broker.store import Store
from penstock.engine.run.event_payloads import Started
from penstock.engine.run.events import StepCompleted, WorkflowCompleted, WorkflowStarted
from penstock.engine.validation import parse
from tests.http.conftest import ONE_STEP

pytestmark = pytest.mark.usefixtures("index")

LATER = "2099-01-01T00:00:00Z"
BAD = ("", "True", "1", "yes", "null", "true ", "\x00", "🙂", "true'--", "x" * 5000)


@pytest.fixture
async def workflow(store: Store) -> str:
    """A workflow of the test's own."""
    name = f"w{uuid4().hex}"
    await store.definitions.register(parse({**ONE_STEP, "name": name}))
    return name


async def test_paused_runs_are_listed_with_since_when(http: ASGIConductor, workflow: str) -> None:
    paused, other = await _started(http, workflow), await _started(http, workflow)
    at = (await _order(http, paused, "pause")).json["paused_at"]

    (row,) = (await http.simulate_get(f"/runs?workflow={workflow}&paused=true")).json

    assert (paused, "running", at) == (row["run_id"], row["status"], row["paused_at"])
    (row,) = (await http.simulate_get(f"/runs?workflow={workflow}&paused=false")).json
    assert (other, False) == (row["run_id"], "paused_at" in row)
    assert [other, paused] == await _listed(http, workflow)
    await _order(http, paused, "resume")
    assert [] == await _listed(http, workflow, "paused=true")
    assert [other, paused] == await _listed(http, workflow, "paused=false")


async def test_the_filter_goes_with_the_others(http: ASGIConductor, workflow: str) -> None:
    first, second, third = [await _started(http, workflow, labels={"of": workflow}) for _ in range(3)]
    plain, scheduled = await _started(http, workflow), await _started(http, workflow, run_at=LATER)
    for run_id in (first, third, plain, scheduled):
        await _order(http, run_id, "pause")
    assert [third, first] == await _listed(http, workflow, f"label=of:{workflow}&paused=true")
    assert [third, first] == await _listed(http, workflow, f"q={workflow[:20]}&paused=true")
    assert [second] == await _listed(http, workflow, f"label=of:{workflow}&paused=false")
    assert [scheduled] == await _listed(http, workflow, "status=scheduled&paused=true")
    assert [plain, third, first] == await _listed(http, workflow, "status=running&paused=true")
    assert [] == await _listed(http, workflow, "status=completed&paused=true")
    assert [first] == await _listed(http, workflow, f"prefix={first}&paused=true")
    one = await http.simulate_get(f"/runs?workflow={workflow}&paused=true&limit=3")
    path = one.headers["link"].partition(">")[0].lstrip("<")
    assert [scheduled, plain, third] == [run["run_id"] for run in one.json]
    assert [first] == [run["run_id"] for run in (await http.simulate_get(path)).json]


async def test_paused_runs_are_counted(http: ASGIConductor, workflow: str) -> None:
    run_ids = [await _started(http, workflow) for _ in range(3)]
    scheduled = await _started(http, workflow, run_at=LATER)
    for run_id in (run_ids[0], scheduled):
        await _order(http, run_id, "pause")
    assert {"running": 1, "scheduled": 1} == await _counts(http, workflow, "paused=true")
    assert {"running": 2} == await _counts(http, workflow, "paused=false")
    assert {"running": 3, "scheduled": 1} == await _counts(http, workflow, "")
    hours = (await http.simulate_get(f"/runs/stats?workflow={workflow}&paused=true&bucket=1h")).json
    assert 2 == hours["total"]


async def test_a_run_that_has_ended_is_not_paused_any_more(http: ASGIConductor, store: Store, workflow: str) -> None:
    completed, cancelled = await _started(http, workflow), await _started(http, workflow)
    for run_id in (completed, cancelled):
        await _order(http, run_id, "pause")
    await store.history.append(StepCompleted(run_id=completed, step_id="a", attempt_number=1, payload=Raw(b"1")))
    await store.history.append(WorkflowCompleted(run_id=completed))
    await _order(http, cancelled, "cancel")
    assert [] == await _listed(http, workflow, "paused=true")
    assert [cancelled, completed] == await _listed(http, workflow, "paused=false")
    assert {"cancelled": 1, "completed": 1} == await _counts(http, workflow, "paused=false")


async def test_a_paused_run_whose_start_comes_stays_scheduled_until_it_goes_on(
    http: ASGIConductor, store: Store, workflow: str
) -> None:
    run_id = await _started(http, workflow, run_at=LATER)
    await _order(http, run_id, "pause")
    digest = (await store.definitions.latest(workflow))[1]
    await store.history.append(WorkflowStarted(run_id=run_id, timestamp=now(), payload=Started(workflow, "1", digest)))
    assert [run_id] == await _listed(http, workflow, "status=scheduled&paused=true")
    assert {"scheduled": 1} == await _counts(http, workflow, "")
    await _order(http, run_id, "resume")
    assert [run_id] == await _listed(http, workflow, "status=running&paused=false")
    assert {"running": 1} == await _counts(http, workflow, "")


async def test_an_imported_run_that_was_paused_is_found(http: ASGIConductor, workflow: str) -> None:
    run_id, imported = await _started(http, workflow), uuid4().hex
    await _order(http, run_id, "pause")
    document = (await http.simulate_get(f"/runs/{run_id}/export")).content.replace(run_id.encode(), imported.encode())
    await _order(http, run_id, "resume")
    assert 201 == (await http.simulate_post("/runs/import", body=document)).status_code
    (row,) = (await http.simulate_get(f"/runs?workflow={workflow}&paused=true")).json
    assert (imported, True, True) == (row["run_id"], row["imported"], "paused_at" in row)


@pytest.mark.parametrize("value", BAD, ids=ascii)
@pytest.mark.parametrize("path", ["/runs", "/runs/stats"])
async def test_a_value_that_is_neither_true_nor_false_is_named(http: ASGIConductor, path: str, value: str) -> None:
    answer = await http.simulate_get(f"{path}?paused={quote(value)}")
    assert (400, True) == (answer.status_code, answer.text.startswith("paused must be one of true false, not "))


@pytest.mark.parametrize("path", ["/runs", "/runs/stats"])
async def test_a_value_that_is_given_twice_is_named(http: ASGIConductor, path: str) -> None:
    answer = await http.simulate_get(f"{path}?paused=true&paused=false")
    assert (400, "paused is given 2 times") == (answer.status_code, answer.text.strip())


async def test_many_runs_are_chosen_by_whether_they_are_paused(http: ASGIConductor, workflow: str) -> None:
    first, second, third = [await _started(http, workflow) for _ in range(3)]
    await _order(http, second, "pause")
    assert [third, first] == (await _many(http, "pause", workflow, paused=False, dry_run=True)).json["paused"]
    resumed = (await _many(http, "resume", workflow, paused=True)).json
    assert ([second], [], 1) == (resumed["resumed"], resumed["skipped"], resumed["total"])
    await _order(http, first, "pause")
    assert [first] == (await _many(http, "cancel", workflow, paused=True)).json["cancelled"]
    assert [third, second] == (await _many(http, "cancel", workflow, paused=False)).json["cancelled"]
    assert 0 == (await _many(http, "cancel", workflow)).json["total"]


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume"])
@pytest.mark.parametrize("value", ["true", 1, [], {}])
async def test_another_value_for_many_runs_is_named(
    http: ASGIConductor, workflow: str, verb: str, value: object
) -> None:
    answer = await _many(http, verb, workflow, paused=value)
    assert (400, True) == (answer.status_code, "paused" in answer.text)


@pytest.mark.parametrize("verb", ["retry", "rerun", "prune"])
async def test_what_is_done_with_runs_that_have_ended_knows_no_pause(
    http: ASGIConductor, workflow: str, verb: str
) -> None:
    answer = await http.simulate_post(f"/runs/{verb}", body=orjson.dumps({"workflow_id": workflow, "paused": True}))
    assert (400, True) == (answer.status_code, "paused" in answer.text)


async def _started(http: ASGIConductor, workflow: str, **fields: object) -> str:
    answer = await http.simulate_post("/runs", body=orjson.dumps({"workflow": workflow, **fields}))
    return str(answer.json["run_id"])


async def _order(http: ASGIConductor, run_id: str, verb: str) -> Result:
    answer = await http.simulate_post(f"/runs/{run_id}/{verb}")
    assert 200 == answer.status_code, answer.text
    return answer


async def _many(http: ASGIConductor, verb: str, workflow: str, **fields: object) -> Result:
    return await http.simulate_post(f"/runs/{verb}", body=orjson.dumps({"workflow_id": workflow, **fields}))


async def _listed(http: ASGIConductor, workflow: str, query: str = "") -> list[str]:
    answer = await http.simulate_get(f"/runs?workflow={workflow}&{query}")
    assert 200 == answer.status_code, answer.text
    return [run["run_id"] for run in answer.json]


async def _counts(http: ASGIConductor, workflow: str, query: str) -> dict[str, int]:
    answer = (await http.simulate_get(f"/runs/stats?workflow={workflow}&{query}")).json
    counts: dict[str, int] = answer["buckets"][0]["counts"] if answer["buckets"] else {}
    assert answer["total"] == sum(counts.values())
    return counts
