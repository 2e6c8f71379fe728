"""The command as a shell sees it: what it prints, where, and its exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.commands import bulk
from tests.cli.conftest import Answer, Penstock, Service, stream

pytestmark = pytest.mark.usefixtures("empty_directory")

RUN = {
    "run_id": "r1",
    "workflow_id": "w",
    "version": "1",
    "status": "completed",
    "created_at": "2026-01-01T00:00:00Z",
    "started_at": "2026-01-01T00:00:00Z",
    "finished_at": "2026-01-01T00:00:01.5Z",
    "steps": {
        "a": {"status": "completed", "attempts": 1, "output": {"n": 1}},
        "b": {"status": "skipped", "attempts": 0},
    },
}
FAILED = {**RUN, "status": "failed", "error": "no\x1bgood"}
EVENT = {"type": "workflow.started", "run_id": "r1", "timestamp": "2026-01-01T00:00:00Z"}


def ends(service: Service, run: dict[str, object]) -> None:
    service.on("GET /runs/r1/events", stream((3, EVENT)))
    service.on("GET /runs/r1/events?after=3", [])
    service.on("GET /runs/r1", run)


def test_help_imports_neither_client_nor_rich_nor_settings() -> None:
    code = "import sys; from penstock.cli.main import call; call(['--help']); print(sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "penstock.cli.main" in modules
    assert not [
        name for name in ("httpx2", "rich", "msgspec", "orjson", "penstock.cli.commands.run") if f"'{name}'" in modules
    ]


@pytest.mark.parametrize(
    "args",
    [
        ("nope",),
        ("run", "nope"),
        ("run", "start"),
        ("run", "start", "w", "--input", "{"),
        ("run", "list", "--status", "odd"),
        ("run", "list", "--limit", "0"),
        ("run", "cancel"),
        ("workflow", "register", "no-such-file"),
        ("config", "--shards", "0"),
        ("config", "--config", "no-such-file"),
        ("config", "--odd", "1"),
    ],
)
def test_wrong_usage_is_2_on_stderr(penstock: Penstock, args: tuple[str, ...]) -> None:
    code, out, err = penstock(*args)
    assert (2, "") == (code, out)
    assert "Error: " in err


def test_service_that_is_not_there_is_3(penstock: Penstock) -> None:
    code, out, err = penstock("--url", "http://127.0.0.1:1", "run", "list")
    assert (3, "") == (code, out)
    assert err.startswith("Error: the service cannot be reached: http://127.0.0.1:1/runs")
    assert "`penstock serve` starts it; --url or SERVICE_URL say where it is." in err


def test_a_missing_token_says_how_it_is_given_and_a_wrong_one_of_an_approval_does_not(
    penstock: Penstock, service: Service
) -> None:
    service.on("GET /workers", Answer(b"a valid bearer token is needed\n", 401))
    hint = "Give one by --token or SERVICE_API_TOKEN; one that was given is wrong, revoked or expired."
    told = f"Error: a valid bearer token is needed\n{hint}\n"
    assert (1, "", told) == penstock("worker", "list")
    service.on(
        "POST /runs/r1/approval/a?action=approve&token=x",
        Answer(b"the token is not valid for this step, or no longer\n", 401),
    )
    refused = penstock("approval", "approve", "r1", "a", "--token", "x")
    assert (1, "", "Error: the token is not valid for this step, or no longer\n") == refused


def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(penstock: Penstock, service: Service) -> None:
    assert (1, "", "Error: the token may hold printable ASCII characters only\n") == penstock(
        "--token", "hush\n", "worker", "list"
    )
    assert [] == service.requests


def test_error_of_the_service_is_1_with_its_text(penstock: Penstock, service: Service) -> None:
    service.on("GET /runs/r1", Answer(b"run r1 is not \x1bknown\n", 404))
    assert (1, "", "Error: run r1 is not \\x1bknown\n") == penstock("run", "status", "r1")


def test_interrupt_is_130(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.client.client.Client.workers", interrupted)
    assert 130 == penstock("worker", "list").code


def test_status_says_what_a_step_waits_for(penstock: Penstock, service: Service) -> None:
    counts = {"total": 9, "queued": 3, "running": 2, "completed": 4, "failed": 0, "cancelled": 0}
    steps: dict[str, dict[str, object]] = {
        "nap": {"wake_at": "2026-11-23T16:08:51.577511Z"},
        "paid": {"waits_for": {"event": "pay", "correlate": {"field": "order.id", "value": 7}}},
        "any": {"waits_for": {"event": "pay"}},
        "each": {"items": counts},
        "kid": {"child_run_id": "01a1fbd4e22e73c2b60e9754e7b7a067"},
        "work": {"worker_id": "w"},
    }
    running = {step_id: {"status": "running", "attempts": 1, **step} for step_id, step in steps.items()}
    paused = {"paused_at": "2026-11-23T16:09:00.5Z"}
    service.on("GET /runs/r1", {**RUN, "status": "running", "steps": running, **paused})

    lines = penstock("run", "status", "r1").out.splitlines()

    assert "status    running, paused since 2026-11-23T16:09:00Z" in lines
    assert [re.split(r"  +", line)[-1] for line in lines[-6:]] == [
        "sleeps until 2026-11-23T16:08:51Z",
        "waits for event pay, order.id 7",
        "waits for event pay",
        "4 of 9 completed, 2 running, 3 queued",
        "child 01a1fbd4e22e73c2b60e9754e7b7a067",
        "w",
    ]


@pytest.mark.parametrize(
    "args", [("--json", "run", "status", "r1"), ("run", "--json", "status", "r1"), ("run", "status", "r1", "--json")]
)
def test_json_works_in_any_place(penstock: Penstock, service: Service, args: tuple[str, ...]) -> None:
    service.on("GET /runs/r1", RUN)
    code, out, _ = penstock(*args)
    assert (0, RUN) == (code, json.loads(out))


def test_status_shows_steps_with_outputs(penstock: Penstock, service: Service) -> None:
    service.on("GET /runs/r1", FAILED)
    lines = penstock("run", "status", "r1").out.splitlines()
    assert "took      1.5s" in lines
    assert r"error     no\x1bgood" in lines
    assert ["a", "completed", "1", '{"n":', "1}"] == next(line for line in lines if line.startswith("a ")).split()
    assert ["b", "skipped"] == lines[-1].split()


def test_start_prints_the_run_id_alone(penstock: Penstock, service: Service) -> None:
    service.on("POST /runs", {"run_id": "r1"})
    assert (0, "r1\n", "") == penstock("run", "start", "w", "--input", "[1]")
    assert [{"workflow": "w", "input": [1]}] == service.bodies("POST /runs")


def test_waiting_is_0_for_a_completed_run_and_4_for_another(penstock: Penstock, service: Service) -> None:
    service.on("POST /runs", {"run_id": "r1"})
    for run, code in ((RUN, 0), (FAILED, 4), ({**RUN, "status": "cancelled"}, 4)):
        ends(service, run)
        started = penstock("run", "start", "w", "--wait")
        assert (code, "r1\n") == (started.code, started.err)
        assert "r1\n" == penstock("run", "start", "w", "--wait", "--json").err
        assert code == penstock("run", "status", "r1", "--wait", "--json").code
        assert code == penstock("run", "watch", "r1").code


def test_watch_away_from_a_terminal_prints_events(penstock: Penstock, service: Service) -> None:
    ends(service, RUN)
    assert "3  2026-01-01T00:00:00.000Z  workflow.started\n" == penstock("run", "watch", "r1").out


def test_an_event_shows_its_attempt_iteration_delivery_and_worker(penstock: Penstock, service: Service) -> None:
    more = {"step_id": "a", "attempt_number": 2, "iteration": 3, "delivery": 4, "worker_id": "w-1", "payload": {"n": 1}}
    service.on("GET /runs/r1/events?after=0", [{"seq": 7, **EVENT, "type": "step.started", **more}])
    line = '7  2026-01-01T00:00:00.000Z  step.started  a  attempt 2  iteration 3  delivery 4  by w-1  {"n": 1}\n'
    assert line == penstock("run", "events", "r1").out


def test_an_answer_that_says_when_its_execution_began_shows_it(penstock: Penstock, service: Service) -> None:
    more = {"step_id": "a", "attempt_number": 1, "started_at": "2025-12-31T23:59:59.987654Z", "worker_id": "w-1"}
    service.on("GET /runs/r1/events?after=0", [{"seq": 7, **EVENT, "type": "step.completed", **more, "payload": 1}])
    line = "7  2026-01-01T00:00:00.000Z  step.completed  a  attempt 1  began 2025-12-31T23:59:59.987Z  by w-1  1\n"
    assert line == penstock("run", "events", "r1").out
    assert more.items() <= json.loads(penstock("run", "events", "r1", "--json").out)[0].items()


def test_events_are_an_array_and_followed_ones_are_lines(penstock: Penstock, service: Service) -> None:
    ends(service, RUN)
    service.on("GET /runs/r1/events?after=2", [{"seq": 3, **EVENT}])
    assert [{"seq": 3, **EVENT}] == json.loads(penstock("run", "events", "r1", "--after", "2", "--json").out)
    assert {"seq": 3, **EVENT} == json.loads(penstock("run", "events", "r1", "--follow", "--json").out)


def test_list_prints_a_table_and_sends_its_filters(penstock: Penstock, service: Service) -> None:
    service.on("GET /runs?workflow=w&status=failed&after=2026-01-01T00%3A00%3A00Z&limit=5", [RUN])
    out = penstock(
        "run", "list", "--workflow", "w", "--status", "failed", "--after", "2026-01-01T00:00:00Z", "--limit", "5"
    ).out
    assert [
        "RUN  WORKFLOW  STATUS     CREATED               TOOK",
        "r1   w         completed  2026-01-01T00:00:00Z  1.5s",
    ] == out.splitlines()


def test_cancel_goes_on_after_a_run_that_cannot_be_cancelled(penstock: Penstock, service: Service) -> None:
    service.on("POST /runs/r1/cancel", Answer(b"run r1 is completed\n", 409))
    service.on("POST /runs/r2/cancel", {"status": "cancelled", "run_id": "r2"})
    assert (1, "r2 cancelled\n", "Error: run r1 is completed\n") == penstock(
        "run", "cancel", "r1", "r2", "--reason", "why"
    )
    assert [{"reason": "why"}] == service.bodies("POST /runs/r2/cancel")


def test_bulk_splits_and_prints_the_ids_also_after_an_error(
    penstock: Penstock, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "REPEATED_S_MAX", 0.0)
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(map(str, range(1500))))
    service.on("POST /runs/bulk", {"run_ids": ["a"], "total": 1}, {"run_ids": ["b"], "total": 1})
    assert (0, "a\nb\n", "") == penstock("run", "bulk", "w", str(file))
    _, second = service.bodies("POST /runs/bulk")
    assert {"workflow_id": "w", "inputs": list(range(1000, 1500))} == second
    service.on("POST /runs/bulk", {"run_ids": ["a"], "total": 1}, Answer(b"no\n", 503))
    code, out, err = penstock("run", "bulk", "w", str(file), "--json")
    assert (3, '{\n  "run_ids": [\n    "a"\n  ],\n  "total": 1\n}\n') == (code, out)
    assert err.startswith("Error: no\n")
    key = err.split("--idempotency-key ")[1].strip()
    assert {f"{key}.0", f"{key}.1"} == {one.headers["idempotency-key"] for one in service.requests[2:]}


def test_a_bulk_start_whose_connection_breaks_is_repeated_with_its_key(
    penstock: Penstock, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAUSE_S", 0.0)
    file = tmp_path / "in.json"
    file.write_text("[1, 2]")
    started = {"run_ids": ["a", "b"], "total": 2}
    service.on("POST /runs/bulk", Answer(b'{"run', length=40), Answer(b"no\n", 503), started)
    assert (0, "a\nb\n", "") == penstock("run", "bulk", "w", str(file))
    sent = [(one.headers["idempotency-key"], one.body) for one in service.requests]
    assert (3, 1) == (len(sent), len(set(sent)))
    assert (0, "a\nb\n", "") == penstock("run", "bulk", "w", str(file), "--idempotency-key", "mine")
    assert "mine.0" == service.requests[-1].headers["idempotency-key"] != sent[0][0]


def test_a_version_is_started_alone_and_in_bulk(penstock: Penstock, service: Service, tmp_path: Path) -> None:
    (tmp_path / "inputs.json").write_text("[1]")
    service.on("POST /runs", {"run_id": "r"})
    service.on("POST /runs/bulk", {"run_ids": ["r"], "total": 1})
    penstock("run", "start", "w", "--version", "2")
    penstock("run", "bulk", "w", "inputs.json", "--version", "2")
    assert [{"workflow": "w", "version": "2"}] == service.bodies("POST /runs")
    assert [{"workflow_id": "w", "inputs": [1], "version": "2"}] == service.bodies("POST /runs/bulk")


def test_worker_list_shows_optional_fields_as_empty(penstock: Penstock, service: Service) -> None:
    service.on("GET /workers", [{"worker_id": "w1", "task_types": ["a", "b"], "hostname": "h", "pid": 7}])
    assert ["w1", "a,", "b", "1", "h", "7"] == penstock("worker", "list").out.splitlines()[1].split()


def test_worker_list_shows_the_group(penstock: Penstock, service: Service) -> None:
    service.on("GET /workers", [{"worker_id": "w1", "task_types": ["a"], "worker_group": "gpu"}])
    head, row = penstock("worker", "list").out.splitlines()
    assert ["WORKER", "TASKS", "GROUP", "MAX"] == head.split()[:4]
    assert ["w1", "a", "gpu", "1"] == row.split()


def test_config_shows_values_and_origins_but_no_secret(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SERVICE_BRIDGE_TOKEN", "hush")
    monkeypatch.setenv("SERVICE_BROKER_URL", "nats://u:hush@h:4222")
    (tmp_path / "penstock.toml").write_text("monitor_port = 8222")
    code, out, _ = penstock("config", "--shards", "2", "--json")
    values = json.loads(out)
    assert (0, {"value": "2", "source": "flag"}) == (code, values["shards"])
    assert {"value": "(set)", "source": "environment SERVICE_BRIDGE_TOKEN"} == values["bridge_token"]
    assert {"value": "nats://***@h:4222", "source": "environment SERVICE_BROKER_URL"} == values["broker_url"]
    assert {"value": "8222", "source": "file penstock.toml"} == values["monitor_port"]
    assert "hush" not in out


def called(outcome: str, body: bytes, status: int = 200) -> Answer:
    return Answer(body, status, {"Location": f"/runs/{'a' * 32}", "Penstock-Outcome": outcome})


def test_a_call_prints_what_the_run_answers(penstock: Penstock, service: Service) -> None:
    service.on("POST /workflows/one/call?timeout_ms=30000", called("completed", b'{"n":1}'))
    assert (0, '{"n":1}\n', "") == penstock("workflow", "call", "one", "--input", "[1]", "--idempotency-key", "k")
    assert (b"[1]", "k") == (service.requests[0].body, service.requests[0].headers["idempotency-key"])


def test_a_call_that_has_no_output_is_exit_code_4(penstock: Penstock, service: Service) -> None:
    line = "POST /workflows/one/call?timeout_ms=5"
    run = "run " + "a" * 32
    service.on(line, called("failed", b"no luck\n", 502), called("running", b'{"run_id":"x"}', 202))
    told = penstock("workflow", "call", "one", "--timeout-ms", "5")
    assert (4, "", f"{run} failed: no luck\n") == told
    assert (4, "", f"{run} running: it has not answered in time and goes on\n") == penstock(
        "workflow", "call", "one", "--timeout-ms", "5"
    )


def test_a_call_of_an_unknown_workflow_is_told(penstock: Penstock, service: Service) -> None:
    service.on("POST /workflows/one/call?timeout_ms=30000", Answer(b"no workflow\n", 404))
    assert (1, "", "Error: no workflow\n") == penstock("workflow", "call", "one")
