"""Labels in the whole service: expressions read them, and the runs are found by them, also after a crash of everything
and in an index that is built again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from penstock.client import AsyncClient
from penstock.http.openapi.operations.workflows import GREET
from tests.support.pages import carry_out
from tests.support.service import Service

DECIDES = {
    "name": "decides",
    "steps": [
        {"id": "gold", "type": "respond", "when": "run.labels.tier == 'gold'", "config": {"body": "${{ run.labels }}"}},
        {"id": "any", "type": "respond", "when": "!('tier' in run.labels)", "config": {"body": "no tier"}},
    ],
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, shards=1, http_workers=1) as started:
        yield started


@pytest.fixture
def http(service: Service) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=service.url, trust_env=False, timeout=30) as client:
        yield client


def ended(http: httpx2.Client, **fields: Any) -> Any:
    run_id = http.post("/runs", json={"workflow": "decides", **fields}).json()["run_id"]
    return http.get(f"/runs/{run_id}", params={"wait_ms": 20_000}).json()


def found(http: httpx2.Client, **query: str) -> list[str]:
    return [run["run_id"] for run in http.get("/runs", params=query).json()]


def test_expressions_read_labels_and_runs_are_found_by_them(service: Service, http: httpx2.Client) -> None:
    http.post("/workflows", json=DECIDES).raise_for_status()
    gold, none = ended(http, labels={"tier": "gold"}), ended(http)
    assert ("completed", {"tier": "gold"}) == (gold["status"], gold["labels"])
    assert ["completed", "skipped"] == [gold["steps"][step]["status"] for step in ("gold", "any")]
    assert "failed" == none["steps"]["gold"]["status"]
    assert [gold["run_id"]] == found(http, label="tier:gold", status="completed")


def test_an_index_that_is_built_again_has_the_labels(service: Service, http: httpx2.Client) -> None:
    http.post("/workflows", json=DECIDES).raise_for_status()
    runs = [ended(http, labels={"tier": "gold", "number": str(number)}) for number in range(3)]
    service.kill_all()
    shutil.rmtree(service.directory / "data" / "index")
    service.start()
    later = ended(http, labels={"tier": "gold"})
    assert [later["run_id"], *(run["run_id"] for run in reversed(runs))] == found(http, label="tier:gold")
    assert [runs[1]["run_id"]] == found(http, label="number:1")


def test_the_command_line_gives_labels_and_finds_by_them(service: Service, http: httpx2.Client, tmp_path: Path) -> None:
    http.post("/workflows", json=DECIDES).raise_for_status()

    def penstock(*arguments: str) -> str:
        done = service.penstock(*arguments)
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout

    first = penstock("run", "start", "decides", "--label", "tier=gold", "--label", "odd:a=b:c").strip()
    inputs = tmp_path / "inputs.json"
    inputs.write_text("[1, 2]")
    many = penstock("run", "bulk", "decides", str(inputs), "--label", "tier=gold").split()
    penstock("workflow", "call", "decides", "--label", "tier=gold")
    for run_id in (first, *many):
        http.get(f"/runs/{run_id}", params={"wait_ms": 20_000})
    assert "tier:gold odd:a=b:c" in penstock("run", "status", first)
    assert first in penstock("run", "list", "--label", "odd=a=b:c", "--label", "tier:gold")
    assert first in penstock("run", "list", "--q", "A=B")
    assert many[0] not in penstock("run", "list", "--q", "A=B")
    header, row = penstock("run", "stats", "--label", "tier=gold", "--bucket", "24h").splitlines()
    assert (["FROM", "COMPLETED", "TOTAL"], ["4", "4"]) == (header.split(), row.split()[-2:])
    assert "4" == penstock("run", "stats", "--workflow", "decides").split()[-1]
    assert "" == penstock("run", "cancel", "--workflow", "decides", "--label", "tier=gold")
    for wrong, problem in (("tier", "is not key=value"), ("a b=c", "may hold only")):
        refused = service.penstock("run", "start", "decides", "--label", wrong)
        assert (2, True) == (refused.returncode, problem in refused.stderr)


async def test_both_clients_give_labels_and_find_by_them(service: Service, http: httpx2.Client) -> None:
    http.post("/workflows", json=DECIDES).raise_for_status()
    with service.client() as client:
        run_id = client.start("decides", labels={"of": "a client"}).run_id
        many = client.bulk("decides", [b"1", b"2"], labels={"of": "a client"}, run_labels=[{"n": "1"}, None]).run_ids
        called = client.call("decides", labels={"of": "a call"}).run_id
        *newer, oldest = (run.run_id for run in client.runs(labels={"of": "a client"}))
        assert (sorted(many), run_id) == (sorted(newer), oldest)  # the runs of one bulk have no order
        assert [called] == [run.run_id for run in client.runs(text="a CALL")]
        assert 3 == client.run_stats(labels={"of": "a client"}, bucket="1h").total
        assert {"of": "a client", "n": "1"} == client.get_run(many[0]).labels
    async with AsyncClient(service.url) as client:
        found = [run.run_id async for run in client.runs(labels={"of": "a client", "n": "1"})]
        assert ([many[0]], 3) == (found, (await client.run_stats(labels={"of": "a client"})).total)


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="no curl or jq here")
async def test_what_the_page_shows_is_what_happens(service: Service, http: httpx2.Client) -> None:
    http.post("/workflows", json=GREET).raise_for_status()
    for text in ("label=env:prod", "/runs/stats?label="):
        shown = await carry_out("http.md", text, service.url)
        assert shown.page == shown.printed


def test_a_child_has_the_labels_that_its_step_gives_it(http: httpx2.Client) -> None:
    labels = {
        "tier": "${{ run.labels.tier }}",
        "number": "${{ input.number }}",
        "kind": "child",
        "of": "${{ input.of }}",
    }
    child = {"id": "child", "type": "sub_workflow", "config": {"workflow": "decides", "labels": labels}}
    plain = {"id": "plain", "type": "sub_workflow", "config": {"workflow": "decides"}}
    http.post("/workflows", json={**DECIDES, "steps": DECIDES["steps"][1:]}).raise_for_status()
    http.post("/workflows", json={"name": "parent", "steps": [child, plain]}).raise_for_status()

    def run(of: str) -> Any:
        body = {"workflow": "parent", "input": {"number": 7, "of": of}, "labels": {"tier": "gold", "own": "x"}}
        run_id = http.post("/runs", json=body).json()["run_id"]
        return http.get(f"/runs/{run_id}", params={"wait_ms": 20_000}).json()

    parent = run("y")
    assert "completed" == parent["status"]
    ids = {name: step["child_run_id"] for name, step in parent["steps"].items()}
    found = {name: http.get(f"/runs/{run_id}").json() for name, run_id in ids.items()}
    assert {"tier": "gold", "number": "7", "kind": "child", "of": "y"} == found["child"]["labels"]
    assert "labels" not in found["plain"]
    assert [ids["child"]] == [one["run_id"] for one in http.get("/runs?label=kind:child").json()]
    failed = run("y" * 257)
    assert ("failed", False) == (failed["status"], "child_run_id" in failed["steps"]["child"])
    assert 'config.labels "of" has 257 characters, 256 is the most' in failed["steps"]["child"]["error"]


def test_each_child_of_a_map_has_the_labels_that_the_map_gives_it(http: httpx2.Client) -> None:
    labels = {"tier": "${{ run.labels.tier }}", "name": "${{ item.name }}", "place": "${{ index }}"}
    config = {"workflow": "decides", "on_item_failure": "continue", "labels": labels}
    http.post("/workflows", json={**DECIDES, "steps": DECIDES["steps"][1:]}).raise_for_status()
    http.post("/workflows", json={"name": "maps", "steps": [{"id": "m", "type": "map", "config": config}]})
    items = [{"name": "ada"}, {"name": "bob"}, {"name": "x" * 257}]
    body = {"workflow": "maps", "input": items, "labels": {"tier": "gold", "own": "x"}}
    run_id = http.post("/runs", json=body).json()["run_id"]
    run = http.get(f"/runs/{run_id}", params={"wait_ms": 20_000}).json()
    assert "completed" == run["status"]
    children = http.get("/runs", params={"parent": run_id}).json()
    expected = [{"tier": "gold", "name": name, "place": place} for name, place in (("ada", "0"), ("bob", "1"))]
    assert expected == sorted((one["labels"] for one in children), key=lambda found: found["place"])
    output = http.get(f"/runs/{run_id}/steps/m/output").text
    assert 1 == output.count("config.labels")


def test_labels_of_a_map_without_children_are_refused(http: httpx2.Client) -> None:
    step = {"id": "m", "type": "map", "task": "t", "config": {"labels": {"a": "b"}}}
    answer = http.post("/workflows", json={"name": "wrong", "steps": [step]})
    problem = 'step "m": config: labels are those of runs of config.workflow, which is missing'
    assert (400, True) == (answer.status_code, problem in answer.text), answer.text


def test_labels_of_children_that_are_wrong_are_named(http: httpx2.Client) -> None:
    for labels, problem in (
        ({"a b": "x"}, 'labels: key "a b" may hold only'),
        ({"a": 1}, 'labels "a" must be a string, not a number'),
        ({"a": "${{ nothing.x }}"}, "labels.a: column 5"),
        ("a", "labels must be an object"),
    ):
        step = {"id": "c", "type": "sub_workflow", "config": {"workflow": "decides", "labels": labels}}
        answer = http.post("/workflows", json={"name": "wrong", "steps": [step]})
        assert (400, True) == (answer.status_code, problem in answer.text), answer.text
        assert '"c"' in answer.text
