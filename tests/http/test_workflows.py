from __future__ import annotations

import orjson
from falcon.testing import ASGIConductor

from penstock.broker.store import Store
from penstock.engine.validation import parse
from tests.http.conftest import ONE_STEP, TYPED


async def test_a_registered_definition_is_read_back_under_its_name(http: ASGIConductor) -> None:
    answer = await http.simulate_post("/workflows", body=orjson.dumps({**ONE_STEP, "name": "mine", "version": "7"}))
    assert (201, {"status": "registered", "name": "mine"}) == (answer.status_code, answer.json)
    assert "application/json" == answer.headers["content-type"]
    read = await http.simulate_get("/workflows/mine")
    assert {"name": "mine", "version": "7", "steps": [{"id": "a", "task": "work", "type": "normal"}]} == read.json


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
