from __future__ import annotations

from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor, Result

from penstock.broker.store import Store


async def test_ids_stand_in_the_order_of_the_inputs(http: ASGIConductor) -> None:
    answer = await _bulk(http, {"workflow_id": "one", "inputs": [{"n": n} for n in range(20)]})
    assert (201, 20) == (answer.status_code, answer.json["total"])
    inputs = [(await http.simulate_get(f"/runs/{run_id}")).json["input"] for run_id in answer.json["run_ids"]]
    assert [{"n": n} for n in range(20)] == inputs


async def test_a_thousand_runs_start_in_one_request(http: ASGIConductor, store: Store) -> None:
    before = await store.history.last_seq()
    answer = await _bulk(http, {"workflow_id": "one", "inputs": [None] * 1000})
    assert 1000 == answer.json["total"] == len(set(answer.json["run_ids"]))
    assert 1000 == await store.history.last_seq() - before


BAD_INPUTS: dict[str, dict[str, Any]] = {
    "inputs is empty": {"workflow_id": "one", "inputs": []},
    "inputs has 1001 entries, 1000 is the most": {"workflow_id": "one", "inputs": [1] * 1001},
    "input[3]": {"workflow_id": "typed", "inputs": [{"n": 1}] * 3 + [{"n": "x"}]},
    "inputs is required": {"workflow_id": "one"},
    "workflow_id is required": {"inputs": [1]},
    "inputs must be an array, not an object": {"workflow_id": "one", "inputs": {}},
    "workflow_id must be a string, not a number": {"workflow_id": 1, "inputs": [1]},
    'unknown field "workflow"': {"workflow_id": "one", "inputs": [1], "workflow": "one"},
    '"nobody"': {"workflow_id": "nobody", "inputs": [1]},
}


@pytest.mark.parametrize("told", BAD_INPUTS)
async def test_a_bad_request_is_named_and_nothing_starts(http: ASGIConductor, store: Store, told: str) -> None:
    before = await store.history.last_seq()
    answer = await _bulk(http, BAD_INPUTS[told])
    assert 400 == answer.status_code
    assert told in answer.text
    assert before == await store.history.last_seq()


async def test_every_bad_input_is_named_up_to_a_bound(http: ASGIConductor) -> None:
    answer = await _bulk(http, {"workflow_id": "typed", "inputs": [{"n": "x"}] * 200})
    lines = answer.text.strip().splitlines()
    assert 101 == len(lines)
    assert lines[0].startswith("input[0].n: ")
    assert lines[99].startswith("input[99].n: ")


async def test_one_input_over_its_limit_is_named(http: ASGIConductor, store: Store) -> None:
    before = await store.history.last_seq()
    answer = await _bulk(http, {"workflow_id": "one", "inputs": [1, "x" * (1 << 20)]})
    assert 413 == answer.status_code
    assert "input[1]" in answer.text
    assert before == await store.history.last_seq()


@pytest.mark.parametrize("path", ["/runs/bulk", "/runs/cancel", "/runs/retry"])
async def test_paths_beside_the_run_ids_take_only_posts(http: ASGIConductor, path: str) -> None:
    answer = await http.simulate_get(path)
    assert 405 == answer.status_code
    assert "POST" in answer.headers["allow"]
    assert "GET" not in answer.headers["allow"]


async def _bulk(http: ASGIConductor, request: dict[str, Any]) -> Result:
    return await http.simulate_post("/runs/bulk", body=orjson.dumps(request))
