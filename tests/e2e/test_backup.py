"""A backup that is made in the middle of everything, restored into an empty directory: every run in it is as it was,
and goes on."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from tests.support.service import PENSTOCK, Service, clean_environ, free_port
from tests.support.waiting import until_found

pytestmark = pytest.mark.timeout(240)

PATIENCE_S = 60.0
PAUSE_S = 0.05  # between two starts of many: their number is to be checked, each by some requests
ENDED = ("completed", "failed", "cancelled")
SETTINGS = {"shards": 2, "http_workers": 1, "log_level": "warning"}

WORKFLOWS: list[dict[str, Any]] = [
    {"name": "quick", "steps": [{"id": "a", "task": "echo"}, {"id": "b", "task": "echo", "depends_on": ["a"]}]},
    {"name": "held", "steps": [{"id": "a", "task": "held"}, {"id": "b", "task": "echo", "depends_on": ["a"]}]},
    {"name": "queued", "steps": [{"id": "a", "task": "later"}]},
    {"name": "held-map",
     "steps": [{"id": "m", "type": "map", "task": "held", "config": {"items": "${{ [1, 2, 3] }}"}}]},
    {"name": "asleep", "steps": [{"id": "nap", "type": "sleep", "config": {"duration": "20s"}}]},
    {"name": "waits", "steps": [{"id": "w", "type": "wait_for_event", "config": {"event": "news"}}]},
    {"name": "asks", "steps": [{"id": "ask", "type": "approval"}]},
    {"name": "parent", "steps": [{"id": "child", "type": "sub_workflow", "config": {"workflow": "queued"}}]},
    {"name": "signalled", "steps": [{"id": "a", "task": "later"}, {"id": "nap", "type": "sleep",
        "config": {"duration": "1ms"}, "depends_on": ["a"]}]},
]  # fmt: skip
STARTED_ONCE = ("held", "queued", "held-map", "asleep", "waits", "asks", "parent", "signalled")
HELD = {"held": 1, "held-map": 3}


@contextmanager
def worker(service: Service, module: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", f"tests.support.{module}", *arguments], env=service.environ)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def http_of(service: Service) -> httpx2.Client:
    return httpx2.Client(base_url=service.url, trust_env=False, timeout=30)


def run_of(http: httpx2.Client, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = http.get(f"/runs/{run_id}").raise_for_status().json()
    return found


def events_of(http: httpx2.Client, run_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get(f"/runs/{run_id}/events").raise_for_status().json()
    return found


def all_runs(http: httpx2.Client) -> list[str]:
    """The ids of all runs, once the list of them is complete."""
    found, url = list[str](), "/runs?limit=1000"
    while url:
        answer = http.get(url).raise_for_status()
        found += [run["run_id"] for run in answer.json()]
        url = answer.links.get("next", {}).get("url", "")
    return found


def start(http: httpx2.Client, workflow: str) -> str:
    answer = http.post("/runs", json={"workflow": workflow, "input": {"of": workflow}, "labels": {"of": workflow}})
    return str(answer.raise_for_status().json()["run_id"])


def waiting(http: httpx2.Client, run_id: str) -> bool:
    """Whether what is to happen to such a run before the backup has happened."""
    run = run_of(http, run_id)
    step = next(iter(run["steps"].values()))
    held = HELD.get(run["workflow_id"])
    if held and "items" in step:
        return bool(step["items"]["running"] == held)
    wanted = "queued" if run["workflow_id"] in ("queued", "signalled") else "running"
    return bool(step["status"] == wanted)


class Load:
    """Runs that are started again and again, until it is stopped."""

    def __init__(self, service: Service) -> None:
        self._service, self._stopped = service, threading.Event()
        self.acknowledged = list[str]()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with http_of(self._service) as http:
            while not self._stopped.wait(PAUSE_S):
                body = {"workflow_id": "quick", "inputs": [{"n": number} for number in range(20)]}
                self.acknowledged += http.post("/runs/bulk", json=body).raise_for_status().json()["run_ids"]

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


def restore(service: Service, directory: Path, port: int | None = None) -> subprocess.CompletedProcess[str]:
    data = ["--data-dir", str(service.directory / "data"), "--broker-port", str(port or free_port())]
    command = [PENSTOCK, "restore", str(directory), *data, "--json"]
    return subprocess.run(command, env=clean_environ(), capture_output=True, text=True, timeout=120, check=False)


def test_every_run_of_a_backup_is_restored_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    backup = tmp_path / "backup"
    with Service(tmp_path / "a", **SETTINGS) as before, http_of(before) as http, ExitStack() as workers:
        workers.enter_context(worker(before, "echo_worker", "echo"))
        workers.enter_context(worker(before, "holding_worker", "held", "holder"))
        for workflow in WORKFLOWS:
            http.post("/workflows", json=workflow).raise_for_status()
        http.post("/triggers", json={"name": "hear", "workflow": "quick", "event": {"subject": "event.heard"}})
        waits = {workflow: start(http, workflow) for workflow in STARTED_ONCE}
        until_found(lambda: all(waiting(http, run_id) for run_id in waits.values()))
        http.post(f"/runs/{waits['signalled']}/signal/go", json={"n": 1}).raise_for_status()
        heard = http.post("/events/heard", json={"n": 1}).raise_for_status().json()["seq"]
        token = next(e for e in events_of(http, waits["asks"]) if e["type"] == "approval.requested")["payload"]["token"]
        with Load(before) as load:
            until_found(lambda: len(load.acknowledged) > 200)
            early = list(load.acknowledged)
            copy = imported(http, early[0])
            made = before.penstock("backup", str(backup), "--json")
            assert made.returncode == 0, made.stderr
            until_found(lambda: len(load.acknowledged) > len(early) + 200)
        until_found(lambda: all(run_of(http, run_id)["status"] == "completed" for run_id in load.acknowledged))
        former = {run_id: (run_of(http, run_id), events_of(http, run_id)) for run_id in all_runs(http)}
        before.kill_all()
    after = Service(tmp_path / "b", **SETTINGS)
    restored = restore(after, backup)
    assert restored.returncode == 0, restored.stderr
    assert orjson.loads(restored.stdout)["tasks"] >= 1 + 3 + 3
    with after, http_of(after) as http, ExitStack() as workers:
        until_found(lambda: len(all_runs(http)) >= len(early) + len(STARTED_ONCE) + 1)
        run_ids = all_runs(http)
        assert set(early) | set(waits.values()) <= set(run_ids) <= set(former)
        open_ = compare(http, run_ids, former, last_seq(made.stdout))
        assert set(waits.values()) <= open_
        assert copy in set(run_ids) - open_
        assert run_of(http, copy)["imported"] is True
        workers.enter_context(worker(after, "echo_worker", "echo", "held", "later"))
        http.post("/events/news", json={"good": True}).raise_for_status()
        http.post(f"/runs/{waits['asks']}/approval/ask?action=approve&token={token}").raise_for_status()
        until_found(lambda: not unfinished(http, run_ids))
        assert run_of(http, waits["waits"])["steps"]["w"]["output"] == {"good": True}
        assert run_of(http, waits["held-map"])["steps"]["m"]["output"] == [1, 2, 3]
        assert http.get("/dead-letters").json() == []
        triggered = [run_id for run_id in all_runs(http) if run_of(http, run_id).get("trigger")]
        assert len(triggered) == 1, "the event starts one run, in the backup and after it"
        assert http.post("/events/heard", json={"n": 2}).raise_for_status().json()["seq"] > heard
        until_found(lambda: sum(bool(run_of(http, run_id).get("trigger")) for run_id in all_runs(http)) == 2)


def imported(http: httpx2.Client, run_id: str) -> str:
    """The id of a copy of the run, once that has completed."""
    until_found(lambda: run_of(http, run_id)["status"] == "completed")
    document = http.get(f"/runs/{run_id}/export").raise_for_status().text.replace(run_id, "c" * 32)
    return str(http.post("/runs/import", content=document).raise_for_status().json()["run_id"])


def unfinished(http: httpx2.Client, run_ids: list[str]) -> list[dict[str, Any]]:
    runs = (run_of(http, run_id) for run_id in run_ids)
    return [run for run in runs if run["status"] != "completed"]


def compare(http: httpx2.Client, run_ids: list[str], former: dict[str, Any], last_seq: int) -> set[str]:
    """Each run has the events that were stored when the backup was made, and one that had ended is what it was. The
    runs that had not."""
    open_ = set[str]()
    for run_id in run_ids:
        run, events = former[run_id]
        assert stored(events_of(http, run_id), last_seq) == stored(events, last_seq)
        if events[-1]["seq"] <= last_seq and run["status"] in ENDED:
            assert run_of(http, run_id) == run
        else:
            open_.add(run_id)
    return open_


def stored(events: list[dict[str, Any]], last_seq: int) -> list[tuple[Any, ...]]:
    return [(event["seq"], event["type"], event.get("payload")) for event in events if event["seq"] <= last_seq]


def last_seq(manifest: str) -> int:
    """The last sequence of the history when its copy was asked for."""
    streams = {one["name"]: one for one in orjson.loads(manifest)["streams"]}
    return int(streams["WORKFLOW_HISTORY"]["state"]["last_seq"])


def test_a_service_does_not_start_with_a_part_of_a_backup(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with Service(tmp_path, **SETTINGS) as service:
        assert service.penstock("backup", str(backup)).returncode == 0
    other = Service(tmp_path / "other", **SETTINGS)
    copies = orjson.loads((backup / "backup.json").read_bytes())
    spoilt = next(one for one in copies["streams"] if one["name"] == "WORKFLOW_HISTORY")
    spoilt["config"]["storage"] = "nothing"
    (backup / "backup.json").write_bytes(orjson.dumps(copies))
    assert restore(other, backup).returncode == 1
    again = restore(other, backup)
    assert (again.returncode, "has a part of a backup only" in again.stderr) == (1, True)
    data = ["--data-dir", str(other.directory / "data"), "--broker-port", str(free_port())]
    serve = [PENSTOCK, "serve", *data, "--listen", f"127.0.0.1:{free_port()}"]
    refused = subprocess.run(serve, env=clean_environ(), capture_output=True, text=True, timeout=60, check=False)
    assert (refused.returncode, "has a part of a backup only" in refused.stderr) == (1, True)


def test_a_restore_that_could_not_begin_leaves_nothing_behind(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    other = Service(tmp_path / "other", **SETTINGS)
    with Service(tmp_path, **SETTINGS) as service:
        assert service.penstock("backup", str(backup)).returncode == 0
        port = int(service.broker_url.rpartition(":")[2])
        refused = restore(other, backup, port)
        assert (refused.returncode, f"port {port}" in refused.stderr) == (1, True)
    assert restore(other, backup).returncode == 0


def test_a_backup_does_not_name_files_elsewhere(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with Service(tmp_path, **SETTINGS) as service:
        assert service.penstock("backup", str(backup)).returncode == 0
    manifest = (backup / "backup.json").read_bytes()
    (backup / "backup.json").write_bytes(manifest.replace(b'"WORKFLOW_HISTORY"', b'"../../elsewhere"', 1))
    refused = restore(Service(tmp_path / "other", **SETTINGS), backup)
    assert (refused.returncode, "backup.json cannot be read" in refused.stderr) == (1, True)


def limit_of(http: httpx2.Client) -> dict[str, Any]:
    found: dict[str, Any] = http.get("/limits/one").raise_for_status().json()
    return found


def ids_of(slots: list[dict[str, Any]]) -> list[str]:
    return sorted(one["run_id"] for one in slots)


def test_who_holds_a_slot_in_a_backup_holds_it_when_it_is_restored_and_who_waits_waits(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    steps = [{"id": "a", "task": "later"}]
    with Service(tmp_path / "a", **SETTINGS) as before, http_of(before) as http:
        http.post("/workflows", json={"name": "one", "concurrency": [{"limit": 1}], "steps": steps}).raise_for_status()
        first = start(http, "one")
        until_found(lambda: run_of(http, first)["status"] == "running")
        others = sorted(start(http, "one") for _ in range(3))
        until_found(lambda: limit_of(http)["waiting_total"] == len(others))
        http.post(f"/runs/{others[0]}/pause").raise_for_status()
        http.post(f"/runs/{others[0]}/resume").raise_for_status()
        until_found(lambda: limit_of(http)["waiting_total"] == len(others))
        assert before.penstock("backup", str(tmp_path / "backup"), "--json").returncode == 0
        before.kill_all()
    after = Service(tmp_path / "b", **SETTINGS)
    restored = restore(after, tmp_path / "backup")
    assert restored.returncode == 0, restored.stderr
    with after, http_of(after) as http:
        found = until_found(lambda: (one := limit_of(http))["holders"] and one)
        assert ([first], others) == (ids_of(found["holders"]), ids_of(found["waiting"]))
        with worker(after, "echo_worker", "later"):
            until_found(lambda: all(run_of(http, run_id)["status"] == "completed" for run_id in [first, *others]))
        until_found(lambda: not limit_of(http)["holders"])
