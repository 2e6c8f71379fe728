"""The scripts as people call them. What they count must add up; how fast it went is none of a test's business."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from load.console_browser import chromium
from load.processes import cpu_s, memory_bytes, roles
from load.service import Service, service
from load.targets import ROWS
from load.workloads import WORKLOADS

from tests.scripts.conftest import SCRIPTS

PROGRAM_S_MAX = 250
DIFFERENCES = {"limit-waiting"}  # of two memories: of few runs it may be below 0
ROWS_OF = {
    "start": {"start"},
    "bulk": {"bulk", "bulk-lag"},
    "bulk-accept": {"bulk-accept"},
    "latency": {"latency-p50", "latency-p99", "latency-post", "latency-publishes", "publish", "step-to-step"},
    "closed": {"closed-16", "closed-64", "closed-16-log", "closed-64-log"},
    "bridge": {"bridge-p50", "bridge-16", "bridge-16-log"},
    "bulk-on-50k": {"bulk-on-50k"},
    "bulk-queue": {"bulk-queue"},
    "two-shards": {"two-shards"},
    "fsync-always": {"fsync-always"},
    "parked-100k": {"parked-100k", "idle-100k"},
    "parked-200k": {"parked-200k", "idle-200k"},
    "parked-bound": {"idle-bound"},
    "killed": {"killed-ready", "killed-moving"},
    "scheduled": {"scheduled-p99", "scheduled-accept"},
    "burst": {"burst", "burst-answered", "burst-slowest", "burst-lag"},
    "sticky": {"sticky"},
    "map": {"map", "map-ratio"},
    "map-snapshot": {"map-snapshot"},
    "map-bulk": {"map-bulk"},
    "children": {"children"},
    "keys": {"key-cpu", "key-reads"},
    "logs": {"logs", "logs-kept", "logs-bulk"},
    "chunks": {"log-first", "stream-p50", "stream-p99", "stream-late"},
    "console": {
        *(f"console-{name}" for name in ("bytes", "requests", "paint", "seen", "seen-p99", "list", "fifty")),
        *(
            f"console-{page}{figure}"
            for page in ("events", "map", "chain")
            for figure in ("", "-whole", "-frames", "-heap")
        ),
    },
    "call": {"call-p50", "call-p99", "call-64", "call-64-p50"},
    "client": {"client-64", "client-64-runs"},
    "dev-reload": {"dev-reload", "dev-reload-most"},
    "events": {"event-p50", "event-p99", "event-steady-p50", "event-steady-p99", "events-64"},
    "asleep-100k": {"asleep-100k", "idle-asleep", "asleep-p99", "asleep-timer"},
    "rerun": {"rerun", "rerun-from", "rerun-from-end"},
    "scaling": {"scaling-1", "scaling-2", "scaling-4", "scaling-used"},
    "shapes": {"shape-64", "shape-200", "shape-64k"},
    "kept": {
        *(f"kept-{name}-{share}" for name in ("metrics", "list", "run") for share in ("p50", "p99")),
        *(f"kept-at-once-{name}-{share}" for name in ("list", "run") for share in ("p50", "p99")),
        *(f"kept-{name}" for name in ("memory", "memory-later", "disk", "bulk", "start")),
    },
    "kept-archived": {
        *(f"kept-archived-{name}-{share}" for name in ("list", "run") for share in ("p50", "p99")),
        *(f"kept-archived-{name}" for name in ("late", "memory", "disk")),
    },
    "limit": {"limit-100", "limit-keys"},
    "limit-waiting": {"limit-waiting", "limit-admit"},
    "limit-next": {"limit-next", "limit-next-p99"},
    "rate-500": {"rate-500", "rate-500-most"},
    "limit-fair": {"limit-fair"},
    "prune": {"prune", "prune-bulk"},
    "otel": {"otel"},
    "pause": {"pause", "pause-withdrawn", "resume", "resume-queued"},
    "cancel": {"cancel-p50", "cancel-p99", "cancel-bridge-p50", "cancel-bridge-p99"},
    "travel": {"travel-first", "travel", "travel-anywhere"},
    "explain": {"explain-p50", "explain-p99"},
    "expressions": {"expressions"},
    "labels": {
        "label-fill",
        *(
            f"label-{name}-{share}"
            for name in ("half", "many", "both", "text", "stats", "stats-half")
            for share in ("p50", "p99")
        ),
    },
}
# Workloads that need no service of their own, several to a call; each of the others has a call to itself.
TOGETHER = (
    ("bulk", "latency", "closed", "call", "client"),
    ("burst", "sticky", "scheduled", "rerun", "travel"),
    ("map", "map-snapshot", "map-bulk", "children"),
    ("logs", "chunks", "expressions", "bulk-on-50k"),
)
CALLS = (*TOGETHER, *((name,) for name in WORKLOADS if not any(name in some for some in TOGETHER)))


def call(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPTS / script), *arguments],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S_MAX,
        check=False,
    )


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service for all tests of this file, in a loop of its own."""
    with asyncio.Runner() as runner:
        block = service(tmp_path_factory.mktemp("service"))
        yield runner.run(block.__aenter__())
        runner.run(block.__aexit__(None, None, None))


def loadtest(running: Service, *arguments: str) -> dict[str, Any]:
    environ = {**os.environ, "SERVICE_BROKER_URL": running.broker_url, "SERVICE_URL": running.url}
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "loadtest.py"), "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S_MAX,
        env=environ,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("workloads", CALLS, ids=" ".join)
def test_a_quick_benchmark_has_every_row_and_its_counts_add_up(workloads: tuple[str, ...], tmp_path: Path) -> None:
    """A workload that does not see all its runs complete ends the benchmark with an error."""
    if "console" in workloads and not chromium() and os.geteuid() != 0:
        pytest.skip("needs Chromium, which only root could install")
    target = tmp_path / "found.json"
    only = [word for workload in workloads for word in ("--only", workload)]
    done = call("bench.py", "--quick", *only, "--json", str(target))
    assert 0 == done.returncode, done.stderr
    found = json.loads(target.read_text())
    rows = {row for workload in workloads for row in ROWS_OF[workload]}
    assert rows == set(found["rows"])
    assert all(row["median"] > 0 for name, row in found["rows"].items() if name not in DIFFERENCES)
    assert all(name in done.stdout for name in rows)
    if "bulk" in workloads:
        assert {"serve", "broker", "shard-0", "services", "http", "worker", "load"} == set(found["cpu_us"]["bulk"])


def test_every_row_is_of_one_workload() -> None:
    assert sorted(ROWS) == sorted(row for rows in ROWS_OF.values() for row in rows)
    assert set(WORKLOADS) == set(ROWS_OF)
    assert sorted(WORKLOADS) == sorted(name for names in CALLS for name in names)


@pytest.mark.timeout(300)
def test_a_benchmark_compares_with_an_earlier_one(tmp_path: Path) -> None:
    target = tmp_path / "found.json"
    assert 0 == call("bench.py", "--quick", "--only", "start", "--json", str(target)).returncode
    done = call("bench.py", "--quick", "--only", "start", "--compare", str(target))
    assert 0 == done.returncode, done.stderr
    assert "to before" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("--mode", "bulk", "--runs", "1500"),
        ("--mode", "rate", "--rate", "50", "--runs", "40"),
        ("--mode", "closed", "--concurrency", "4", "--runs", "40"),
        ("--mode", "closed", "--concurrency", "4", "--runs", "40", "--watch", "poll"),
        ("--mode", "closed", "--concurrency", "4", "--runs", "40", "--watch", "stream"),
    ],
)
def test_a_load_sees_every_run_complete(running: Service, arguments: tuple[str, ...]) -> None:
    found = loadtest(running, *arguments)
    runs = int(arguments[arguments.index("--runs") + 1])
    assert (runs, runs, {"completed": runs}) == (found["begun"], found["accepted"], found["ended"])
    assert runs == sum(found["ended_per_second"])
    assert {} == found["errors"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--url", "http://192.0.2.1:8080"), "--allow-remote"),
        (("--url", "nowhere"), "is no http:// address"),
        (("--mode", "sideways"), "'sideways' is not one of"),
    ],
)
def test_wrong_usage_is_said_at_once(arguments: tuple[str, ...], problem: str) -> None:
    done = call("loadtest.py", *arguments)
    assert 2 == done.returncode
    assert problem in done.stderr


def test_a_service_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = call("loadtest.py", "--url", "http://127.0.0.1:1", "--workers", "0")
    assert (1, "", 1) == (done.returncode, done.stdout, len(done.stderr.splitlines()))


def test_processes_are_found_by_role(running: Service) -> None:
    assert {"serve", "broker", "shard-0", "services", "http"} == set(running.roles)
    assert 2 <= len(running.roles["http"])  # gunicorn's arbiter and its worker
    everyone = [pid for pids in running.roles.values() for pid in pids]
    assert len(everyone) == len(set(everyone))
    assert 0 < cpu_s(everyone)
    assert 50e6 < memory_bytes(everyone)


def test_a_process_that_is_gone_counts_nothing() -> None:
    gone = 2**22 + 1  # more than the kernel hands out
    assert (0, 0) == (cpu_s([gone]), memory_bytes([gone]))
    assert {gone} == roles(gone, {})["serve"]
