"""Failed runs resumed with a real worker: by the bulk request, by their dead letters, over a crash of everything."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from tests.support.service import Service

TASK = "fragile"
WORKFLOW = {"name": "fragile", "steps": [{"id": "a", "task": TASK}, {"id": "b", "task": TASK, "depends_on": ["a"]}]}


class Workshop:
    """A worker that fails everything until it is mended."""

    def __init__(self, service: Service, file: Path) -> None:
        self._file = file
        command = [sys.executable, "-m", "tests.support.mendable_worker", TASK, str(file)]
        self._process = subprocess.Popen(command, env=service.environ)

    def mend(self) -> None:
        self._file.touch()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def workshop(service: Service, tmp_path: Path) -> Iterator[Workshop]:
    with service.client() as client:
        client.register(orjson.dumps(WORKFLOW))
    with closing(Workshop(service, tmp_path / "mended")) as found:
        yield found


@pytest.fixture
def api(service: Service) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=service.url, trust_env=False, timeout=40) as client:
        yield client


def test_a_bulk_replay_resumes_every_failed_run(api: httpx2.Client, workshop: Workshop) -> None:
    run_ids = _failed(api, 50)
    assert 50 == len(_letters(api))
    workshop.mend()
    answer = api.post("/runs/retry", json={"workflow_id": "fragile", "mode": "replay"}).json()
    assert (set(run_ids), [], 50) == (
        {one["original_run_id"] for one in answer["retried"]},
        answer["skipped"],
        answer["total"],
    )
    for number, run_id in enumerate(run_ids):
        run = _ended(api, run_id)
        assert ("completed", 2, 1, number) == (
            run["status"],
            run["steps"]["a"]["attempts"],
            run["steps"]["b"]["attempts"],
            run["steps"]["b"]["output"],
        )
    assert [] == _letters(api)


def test_a_bulk_rerun_leaves_the_failed_runs_as_they_are(api: httpx2.Client, workshop: Workshop) -> None:
    run_ids = _failed(api, 5)
    workshop.mend()
    answer = api.post("/runs/retry", json={"workflow_id": "fragile", "mode": "rerun"}).json()
    for one in answer["retried"]:
        new = _ended(api, one["new_run_id"])
        assert ("completed", one["original_run_id"]) == (new["status"], new["rerun_of"])
        assert run_ids.index(new["rerun_of"]) == new["input"]
    assert {"failed"} == {_ended(api, run_id)["status"] for run_id in run_ids}
    assert 5 == len(_letters(api))


def test_a_resumed_run_goes_on_though_everything_died_then(
    service: Service, api: httpx2.Client, workshop: Workshop
) -> None:
    run_ids = _failed(api, 20)
    workshop.mend()
    assert 20 == len(api.post("/runs/retry", json={"workflow_id": "fragile", "mode": "replay"}).json()["retried"])
    service.kill_all()
    service.start()
    assert {"completed"} == {_ended(api, run_id)["status"] for run_id in run_ids}


def test_the_command_line_lists_shows_replays_and_discards(
    service: Service, api: httpx2.Client, workshop: Workshop
) -> None:
    first, second = _failed(api, 2)
    _, *listed = service.penstock("dlq", "list", "--task", TASK).stdout.splitlines()
    assert 2 == len(listed)
    (other,) = (line for line in listed if first in line)
    (left,) = (line for line in listed if second in line)
    assert "not mended yet" in other
    seq = other.split()[0]
    assert '"run_id":"' + first in service.penstock("dlq", "show", seq).stdout
    workshop.mend()
    assert f"{first} running\n" == service.penstock("dlq", "replay", seq).stdout
    assert "completed" == _ended(api, first)["status"]
    assert 1 == service.penstock("dlq", "show", seq).returncode
    assert 0 == service.penstock("dlq", "discard", left.split()[0]).returncode
    assert [] == orjson.loads(service.penstock("dlq", "list", "--json").stdout)
    assert f"{second} resumed\n" == service.penstock("run", "retry", "--workflow", "fragile", "--mode", "replay").stdout
    assert "completed" == _ended(api, second)["status"]


def test_a_thousand_runs_are_cancelled_by_one_request(service: Service, api: httpx2.Client, workshop: Workshop) -> None:
    api.post("/workflows", json={"name": "idle", "steps": [{"id": "a", "task": "nobody", "timeout": "1h"}]})
    run_ids = api.post("/runs/bulk", json={"workflow_id": "idle", "inputs": [None] * 1000}).json()["run_ids"]
    answer = api.post("/runs/cancel", json={"workflow_id": "idle"})
    assert set(run_ids) == set(answer.json()["cancelled"])
    assert [] == api.get("/runs", params={"workflow": "idle", "status": "running"}).json()


def _failed(api: httpx2.Client, count: int) -> list[str]:
    """Runs with the inputs 0, 1, …, once each has failed."""
    run_ids: list[str] = api.post("/runs/bulk", json={"workflow_id": "fragile", "inputs": [*range(count)]}).json()[
        "run_ids"
    ]
    assert {"failed"} == {_ended(api, run_id)["status"] for run_id in run_ids}
    return run_ids


def _ended(api: httpx2.Client, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(f"/runs/{run_id}", params={"wait_ms": 30_000}).json()
    return found


def _letters(api: httpx2.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/dead-letters").json()
    return found
