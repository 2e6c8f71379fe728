from __future__ import annotations

import shutil
from typing import Any
from uuid import uuid4

import msgspec
import orjson
import pytest
from falcon.testing import ASGIConductor

from penstock.actors.control import run_operations, triggers
from penstock.broker.records.definitions import Definitions
from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings
from penstock.engine.validation import parse
from penstock.http.messages import responses
from penstock.http.resources.workflows import summary
from tests.http.conftest import ONE_STEP, TYPED
from tests.support.pages import carry_out
from tests.support.trigger_events import engine, nothing_left
from tests.support.waiting import until


async def test_a_registered_definition_is_read_back_under_its_name(http: ASGIConductor) -> None:
    answer = await http.simulate_post("/workflows", body=orjson.dumps({**ONE_STEP, "name": "mine", "version": "7"}))
    assert (201, "registered", "mine") == (answer.status_code, answer.json["status"], answer.json["name"])
    assert "application/json" == answer.headers["content-type"]
    read = await http.simulate_get("/workflows/mine")
    assert {"name": "mine", "version": "7", "steps": [{"id": "a", "task": "work", "type": "normal"}]} == read.json


async def test_what_is_read_back_can_be_registered_again(http: ASGIConductor, store: Store) -> None:
    """How a definition is stored, and which versions of the service can read it, is nothing of its own."""
    step = {**ONE_STEP["steps"][0], "when": "run.version == '1'", "compensate": {"task": "undo"}}  # type: ignore[index]
    await http.simulate_post("/workflows", body=orjson.dumps({"name": "again", "steps": [step]}))
    _, digest = await store.definitions.latest("again")
    one = (await http.simulate_get("/workflows/again")).json
    [listed] = [found for found in (await http.simulate_get("/workflows")).json if found["name"] == "again"]
    assert one == listed == {"name": "again", "version": "1", "steps": [{**step, "type": "normal"}]}
    assert 201 == (await http.simulate_post("/workflows", body=orjson.dumps(one))).status_code
    assert digest == (await store.definitions.latest("again"))[1]


async def test_the_list_has_the_latest_definition_of_every_name_once(http: ASGIConductor) -> None:
    for version in ("1", "2"):
        await http.simulate_post("/workflows", body=orjson.dumps({**ONE_STEP, "name": "listed", "version": version}))
    found = (await http.simulate_get("/workflows")).json
    assert ["2"] == [one["version"] for one in found if one["name"] == "listed"]
    assert {"one", "two", "typed"} <= {one["name"] for one in found}


async def test_an_input_schema_is_kept_as_it_was_given(http: ASGIConductor) -> None:
    assert TYPED["input_schema"] == (await http.simulate_get("/workflows/typed")).json["input_schema"]


async def test_an_unknown_workflow_is_not_found(http: ASGIConductor) -> None:
    answer = await http.simulate_get("/workflows/nobody")
    assert 404 == answer.status_code
    assert '"nobody"' in answer.text


async def test_a_run_has_the_definition_that_was_registered_last_here(http: ASGIConductor) -> None:
    for version in ("1", "2", "3"):
        await http.simulate_post("/workflows", body=orjson.dumps({**ONE_STEP, "name": "moving", "version": version}))
        assert version == await _version_of_a_new_run(http, "moving")


async def test_a_definition_that_another_process_registers_is_used_soon(http: ASGIConductor, store: Store) -> None:
    assert "1" == await _version_of_a_new_run(http, "one")
    await store.definitions.register(parse({**ONE_STEP, "version": "from elsewhere"}))
    while await _version_of_a_new_run(http, "one") != "from elsewhere":
        pass


async def _version_of_a_new_run(http: ASGIConductor, workflow: str) -> str:
    run_id = (await http.simulate_post("/runs", body=orjson.dumps({"workflow": workflow}))).json["run_id"]
    version = (await http.simulate_get(f"/runs/{run_id}")).json["version"]
    assert isinstance(version, str)
    return version


async def register(http: ASGIConductor, name: str, version: str = "1", **more: Any) -> Any:
    document = {"name": name, "version": version, "steps": [{"id": "a", "task": "work", **more}]}
    return (await http.simulate_post("/workflows", body=orjson.dumps(document))).json


async def start(http: ASGIConductor, name: str, path: str = "/runs", **more: Any) -> Any:
    document = {"workflow" if path == "/runs" else "workflow_id": name, **more}
    return await http.simulate_post(path, body=orjson.dumps(document))


@pytest.fixture
def name() -> str:
    return f"w{uuid4().hex}"


@pytest.fixture
async def several(http: ASGIConductor, name: str) -> str:
    """A workflow with three versions, of which the oldest was registered again with another task."""
    for version, task in (("1", "old"), ("2", "middle"), ("1", "new")):
        await register(http, name, version, task=task)
    return name


async def test_versions_are_listed_newest_first(http: ASGIConductor, several: str) -> None:
    found = (await http.simulate_get(f"/workflows/{several}/versions")).json
    assert ["1", "2", "1"] == [one["version"] for one in found]
    assert [{"version", "digest", "registered_at"}] * 3 == [one.keys() for one in found]
    at = [one["registered_at"] for one in found]
    assert at == sorted(at, reverse=True)
    assert 3 == len({one["digest"] for one in found})


async def test_one_version_is_shown(http: ASGIConductor, several: str) -> None:
    for version, task in (("1", "new"), ("2", "middle")):
        found = await http.simulate_get(f"/workflows/{several}", params={"version": version})
        assert (version, task) == (found.json["version"], found.json["steps"][0]["task"])


async def test_a_run_can_have_an_older_version(http: ASGIConductor, store: Store, several: str) -> None:
    for version, task in (("1", "new"), ("2", "middle")):
        alone = await start(http, several, version=version)
        many = await start(http, several, "/runs/bulk", version=version, inputs=[1, 2])
        assert (201, 201) == (alone.status_code, many.status_code)
        for run_id in (alone.json["run_id"], *many.json["run_ids"]):
            run = await run_operations.get(store, run_id)
            plan = await store.definitions.load(several, run.digest)
            assert (version, task) == (run.version, plan.steps["a"].task)
    assert "1" == (await run_operations.get(store, (await start(http, several)).json["run_id"])).version


async def test_a_version_has_an_input_schema_of_its_own(http: ASGIConductor, name: str) -> None:
    for version, kind in (("1", "string"), ("2", "integer")):
        document = {"name": name, "version": version, "steps": ONE_STEP["steps"], "input_schema": {"type": kind}}
        await http.simulate_post("/workflows", body=orjson.dumps(document))
    statuses = [
        (await start(http, name, version=version, input=value)).status_code
        for version in ("1", "2")
        for value in ("text", 1)
    ]
    assert [201, 400, 400, 201] == statuses


async def test_a_version_can_be_scheduled(http: ASGIConductor, store: Store, several: str) -> None:
    answer = await start(http, several, version="2", run_at="2099-01-01T00:00:00Z")
    assert ("scheduled", "2") == (
        answer.json["status"],
        (await run_operations.get(store, answer.json["run_id"])).version,
    )


@pytest.mark.parametrize("path", ["/runs", "/runs/bulk"])
async def test_an_unknown_version_is_404_and_named(http: ASGIConductor, several: str, path: str) -> None:
    more = {} if path == "/runs" else {"inputs": [1]}
    answer = await start(http, several, path, version="3", **more)
    assert (404, f'workflow "{several}" has no version "3"\n') == (answer.status_code, answer.text)
    unknown = await start(http, "nobody", path, version="3", **more)
    assert (400, 'workflow "nobody" is not registered\n') == (unknown.status_code, unknown.text)
    for version, problem in (("", "version is empty"), ("x" * 129, "128 is the most"), ("a\nb", "control characters")):
        wrong = await start(http, several, path, version=version, **more)
        assert (400, True) == (wrong.status_code, problem in wrong.text)
    assert 400 == (await start(http, several, path, version=3, **more)).status_code


async def test_versions_of_what_is_not_there_are_404(http: ASGIConductor, several: str) -> None:
    for path in ("/workflows/nobody/versions", "/workflows/nobody?version=1", f"/workflows/{several}?version=9"):
        assert 404 == (await http.simulate_get(path)).status_code
    for path, problem in (
        (f"/workflows/{several}?version=", "version is empty"),
        (f"/workflows/{several}?vers=1", 'unknown query parameter "vers"'),
        (f"/workflows/{several}/versions?limit=1", 'unknown query parameter "limit"'),
        ("/workflows/a%20b/versions", "may hold only"),
        ("/workflows//versions", "the workflow name is missing"),
    ):
        answer = await http.simulate_get(path)
        assert (400, True) == (answer.status_code, problem in answer.text)


@pytest.mark.usefixtures("index")
async def test_a_workflow_that_nothing_needs_is_deleted(http: ASGIConductor, several: str) -> None:
    deleted = await http.simulate_delete(f"/workflows/{several}")
    assert (200, f'{{"name":"{several}","status":"deleted"}}') == (deleted.status_code, deleted.text)
    for path in (f"/workflows/{several}", f"/workflows/{several}/versions", f"/workflows/{several}?version=2"):
        assert 404 == (await http.simulate_get(path)).status_code
    assert 404 == (await http.simulate_delete(f"/workflows/{several}")).status_code
    assert several not in {one["name"] for one in (await http.simulate_get("/workflows")).json}
    for more in ({}, {"version": "2"}):
        assert 400 == (await start(http, several, **more)).status_code
    await register(http, several, "5")
    assert ["5"] == [one["version"] for one in (await http.simulate_get(f"/workflows/{several}/versions")).json]
    assert 201 == (await start(http, several)).status_code


@pytest.mark.usefixtures("index")
async def test_what_needs_a_workflow_is_named_and_keeps_it(http: ASGIConductor, store: Store, several: str) -> None:
    for number in range(6):
        await triggers.put(
            store, {"name": f"{several}.{number}", "workflow": several, "cron": {"expression": "0 0 1 1 *"}}
        )
    runs = (await start(http, several, "/runs/bulk", version="2", inputs=[1, 2])).json["run_ids"]
    later = (await start(http, several, run_at="2099-01-01T00:00:00Z")).json["run_id"]
    answer = await http.simulate_delete(f"/workflows/{several}")
    of_triggers, of_runs, way_out = answer.text.splitlines()
    named = ", ".join(f'"{several}.{number}"' for number in range(5))
    assert (409, f'workflow "{several}" is needed by 6 triggers: {named} and 1 more') == (
        answer.status_code,
        of_triggers,
    )
    assert of_runs.startswith(f'workflow "{several}" is needed by 3 runs that have not ended: ')
    assert {*runs, later} == {*of_runs.partition("ended: ")[2].split(", ")}
    assert "force" in way_out
    assert 200 == (await http.simulate_get(f"/workflows/{several}")).status_code
    for number in range(6):
        await triggers.delete(store, f"{several}.{number}")
    await http.simulate_post("/runs/cancel", body=orjson.dumps({"workflow_id": several}))
    assert 200 == (await http.simulate_delete(f"/workflows/{several}")).status_code


@pytest.mark.usefixtures("index")
async def test_runs_of_a_workflow_that_was_deleted_by_force_keep_their_definition(
    http: ASGIConductor, store: Store, several: str
) -> None:
    run_id = (await start(http, several, version="2")).json["run_id"]
    assert 200 == (await http.simulate_delete(f"/workflows/{several}?force=true")).status_code
    run = (await http.simulate_get(f"/runs/{run_id}")).json
    assert ("running", ["a"]) == (run["status"], list(run["steps"]))
    elsewhere = Definitions(store.definitions._bucket)
    digest = (await run_operations.get(store, run_id)).digest
    assert "middle" == (await elsewhere.load(several, digest)).steps["a"].task
    cancelled = (await http.simulate_post("/runs/cancel", body=orjson.dumps({"workflow_id": several}))).json
    assert [run_id] == cancelled["cancelled"]


async def test_what_comes_to_a_trigger_of_a_deleted_workflow_becomes_a_dead_letter(
    http: ASGIConductor, store: Store, broker_settings: BrokerSettings, name: str
) -> None:
    await register(http, name)
    kept = await triggers.put(store, {"name": name, "workflow": name, "event": {"subject": f"event.{name}"}})
    async with engine(broker_settings):
        assert 200 == (await http.simulate_delete(f"/workflows/{name}?force=true")).status_code
        await http.simulate_post(f"/events/{name}", body=b'{"n": 1}')

        async def dead() -> Any:
            page = await store.dead_letters.page(limit=1000)
            return next((letter for letter in page.dead_letters if letter.trigger == name), None)

        letter = await until(dead)
        await nothing_left(store, kept)
    assert f'workflow "{name}" is not registered' == letter.error


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("force=yes", "force must be one of true false"),
        ("force=", "force must be one of"),
        ("Force=true", "unknown query"),
    ],
)
async def test_a_wrong_parameter_of_a_deletion_is_named(
    http: ASGIConductor, several: str, query: str, problem: str
) -> None:
    answer = await http.simulate_delete(f"/workflows/{several}?{query}")
    assert (400, True) == (answer.status_code, problem in answer.text)
    assert 200 == (await http.simulate_get(f"/workflows/{several}")).status_code


async def test_a_workflow_that_another_process_deletes_is_not_started_for_long(
    http: ASGIConductor, store: Store, name: str
) -> None:
    await register(http, name)
    assert 201 == (await start(http, name)).status_code
    await store.definitions.delete(name)
    while (answer := await start(http, name)).status_code == 201:
        pass
    assert (400, f'workflow "{name}" is not registered\n') == (answer.status_code, answer.text)


async def test_registering_warns_of_what_no_worker_serves(http: ASGIConductor, store: Store, name: str) -> None:
    told = f'step "a": no worker serves task "{name}" now; it waits for one'
    assert {"name": name, "status": "registered", "warnings": [told]} == await register(http, name, task=name)
    registration = {"worker_id": name, "task_types": [name], "max_tasks": 1}
    await store.workers.put(name, msgspec.json.encode(registration))
    assert {"name": name, "status": "registered"} == await register(http, name, "2", task=name)


async def test_registering_warns_of_workflows_that_are_not_there(http: ASGIConductor, name: str) -> None:
    child = {"id": "child", "type": "sub_workflow", "config": {"workflow": f"{name}-child"}}
    document = {"name": name, "steps": [child], "on_failure": {"workflow": f"{name}-alarm"}}
    answer = await http.simulate_post("/workflows", body=orjson.dumps(document))
    assert answer.json["warnings"] == [
        f'step "child": workflow "{name}-child" is not registered now; without it the step fails',
        f'on_failure: workflow "{name}-alarm" is not registered now; without it nothing is started when a run fails',
    ]


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
@pytest.mark.usefixtures("index")
async def test_what_the_page_shows_of_versions_is_so(served: str, definitions: None) -> None:
    page, printed = await carry_out("http.md", "/versions", served)
    assert page == printed


async def test_workflows_in_short(http: ASGIConductor, store: Store) -> None:
    served, other, name = (f"t{uuid4().hex}" for _ in range(3))
    await store.workers.put(f"w-{served}", orjson.dumps({"worker_id": f"w-{served}", "task_types": [served]}))
    tasks = [served, other, f"{other}.b"]
    steps = [{"id": f"s{number}", "task": task} for number, task in enumerate(tasks)]
    await http.simulate_post(
        "/workflows", json={"name": name, "version": "7", "description": "d" * 300, "steps": steps}
    )
    whole = {**steps[0], "worker_group": "gpu"}
    await http.simulate_post("/workflows", json={"name": f"{name}.group", "steps": [whole]})
    await http.simulate_post("/workflows", json={"name": f"{name}.served", "steps": steps[:1]})

    answer = await http.simulate_get("/workflows?summary=true")

    found = {one["name"]: one for one in answer.json if one["name"].startswith(name)}
    assert found == {
        name: {
            "name": name,
            "version": "7",
            "steps": 3,
            "description": "d" * 100,
            "unserved": 2,
            "unserved_task": other,
        },
        f"{name}.group": {"name": f"{name}.group", "version": "1", "steps": 1, "unserved": 1, "unserved_task": served},
        f"{name}.served": {"name": f"{name}.served", "version": "1", "steps": 1},
    }
    again = await http.simulate_get("/workflows?summary=true", headers={"If-None-Match": answer.headers["etag"]})
    assert 304 == again.status_code
    assert "steps" in (await http.simulate_get("/workflows?summary=false")).json[0]


async def test_a_thousand_workflows_of_fifty_steps_in_short_are_small() -> None:
    steps = [{"id": f"a-longish-step-name-{number}", "task": f"some.task.type.{number}"} for number in range(50)]
    one = parse({"name": "department.team.workflow-0001", "description": "w" * 500, "steps": steps})
    listed = responses.encoded([summary(one, ())] * 1000)
    assert len(listed) < 256 * 1024


@pytest.mark.parametrize("query", ["summary=yes", "fields=name"])
async def test_other_forms_of_the_list_are_refused(http: ASGIConductor, query: str) -> None:
    answer = await http.simulate_get(f"/workflows?{query}")
    assert (400, True) == (answer.status_code, query.partition("=")[0] in answer.text)
