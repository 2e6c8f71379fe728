"""`penstock demo --console`: a service in which something of every kind is to be seen, until Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from penstock.client import Client
from tests.support.service import PENSTOCK, Service, _descendants, _still_alive, clean_environ
from tests.support.waiting import until_found

STOP_S_MAX = 40.0
SEEN_S_MAX = 90.0
KINDS = {"agent_loop", "approval", "http", "map", "normal", "planner", "respond", "sleep", "wait_for_event"}


@contextmanager
def showing(*options: str, environ: dict[str, str]) -> Iterator[tuple[dict[str, Any], subprocess.Popen[str]]]:
    """What the command has printed, and its process, which is ended as by Ctrl-C."""
    command = [PENSTOCK, "demo", "--console", "--json", *options]
    process = subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        lines = iter(process.stdout.readline, "")
        text = "".join(line for line in _until_brace(lines))
        assert text, process.stderr.read()
        yield json.loads(text), process
    finally:
        known = [process.pid, *_descendants(process.pid)]
        process.send_signal(signal.SIGINT)
        process.wait(STOP_S_MAX)
        assert [] == _still_alive(known, 2.0)


def _until_brace(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if line == "}\n":
            return


@pytest.mark.timeout(240)
def test_a_service_of_its_own_shows_every_kind_of_run_and_is_gone_after_ctrl_c() -> None:
    with showing(environ=clean_environ()) as (shown, process), Client(shown["console"].removesuffix("/console")) as api:
        assert httpx2.get(shown["console"]).text.startswith("<!DOCTYPE html>")
        definitions = api.workflows()
        assert shown["workflows"] == len(definitions) >= 12
        kinds = {step.type for definition in definitions for step in definition.steps}
        assert kinds == KINDS  # children are those of a map

        def seen(what: str, find: Callable[[], object]) -> None:
            assert until_found(find, SEEN_S_MAX), what

        seen("an order that is undone", lambda: [r for r in api.runs(workflow="shop.order") if r.compensation])
        seen("a run of on_failure", lambda: [r for r in api.runs(workflow="shop.support-case") if r.failure_of])
        seen("children", lambda: len(list(api.runs(workflow="shop.shelf-count", status="completed"))) >= 6)
        seen("a map with failures", lambda: _counts(api) == (1000, 997, 3))
        seen("a paused run", lambda: list(api.runs(paused=True)))
        seen("a scheduled run", lambda: list(api.runs(status="scheduled")))
        seen("a cancelled run", lambda: list(api.runs(status="cancelled")))
        seen("a rerun", lambda: [r for r in api.runs(workflow="site.code-review") if r.rerun_of])
        seen("a run of a webhook", lambda: list(api.runs(trigger="site-push")))
        seen("approvals", lambda: {"shop.refund", "site.code-review"} <= {a.workflow_id for a in api.approvals()})
        seen("dead letters", lambda: {"task", "trigger"} <= {letter.kind for letter in api.dead_letters()})
        seen("a report of an agent", lambda: list(api.runs(workflow="lab.research", status="completed")))
        seen("labels", lambda: list(api.runs(labels={"shop": "web"})))
        [waiting] = api.runs(workflow="lab.protein-folding")
        assert "lab.gpu.fold" in str(api.explain(waiting.run_id).waiting)
        errors = {run.error for run in api.runs(status="failed") if run.error}
        assert all(re.search(r"Atlantis|publish-bot", error) for error in errors), errors
    assert 0 == process.returncode


def _counts(api: Client) -> tuple[int, int, int] | None:
    """Elements of the large map: all, completed, failed."""
    for listed in api.runs(workflow="newsroom.gallery", labels={"album": "opera-night"}):
        counts = api.get_run(listed.run_id).steps["shrink"].items
        return (counts.total, counts.completed, counts.failed) if counts else None
    return None


def test_a_running_service_is_used_and_left_without_triggers_that_fire(service: Service) -> None:
    with showing(environ=service.environ) as (shown, process):
        assert f"{service.url}/console" == shown["console"]
        with service.client() as api:
            assert any(trigger.enabled for trigger in api.triggers())
    assert 0 == process.returncode
    with service.client() as api:
        triggers = api.triggers()
        assert triggers
        assert [] == [trigger.name for trigger in triggers if trigger.enabled]
        assert list(api.runs(workflow="shop.order"))


def test_console_goes_with_no_option_of_the_other_demonstration(service: Service, tmp_path: Path) -> None:
    ran = service.penstock("demo", "--console", "--path", str(tmp_path))
    assert 2 == ran.returncode
    assert "--console goes with neither --path nor --keep-worker" in ran.stderr
