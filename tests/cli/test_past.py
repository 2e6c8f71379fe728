"""`penstock run show --at`, `diff`, `graph`, `export`, `import`: what is sent, and what is shown of the answers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Answer, Penstock, Service

RUN = {
    "run_id": "r1",
    "workflow_id": "w",
    "version": "1",
    "status": "running",
    "created_at": "2026-01-01T00:00:00Z",
    "steps": {"s1": {"status": "queued", "attempts": 0}},
}
IMPORTED = {"run_id": "r1", "workflow_id": "w", "status": "completed", "events": 4, "imported": True}
DIFF = {
    "run": {"differs": True, "fields": ["status", "in\x1bput"], "a": {}, "b": {}},
    "steps": {
        "same": {"differs": False, "a": {}, "b": {}},
        "other": {"differs": True, "fields": ["output"], "a": {}, "b": {}},
        "gone": {"differs": True, "a": {}},
        "new": {"differs": True, "b": {}},
    },
}
GRAPH = {
    "nodes": [
        {"id": "a", "type": "normal", "status": "completed", "task": "t"},
        {"id": "b", "type": "approval", "status": "running"},
    ],
    "edges": [{"from": "a", "to": "b"}],
    "layers": [["a"], ["b"]],
}
EXPORT = b'{"run_id":"r1","definition":{},"events":[]}'


def test_a_run_is_shown_as_it_was(penstock: Penstock, service: Service) -> None:
    service.on("GET /runs/r1?at=7", RUN)
    service.on("GET /runs/r1", {**RUN, "status": "completed"})
    assert ["run", "r1"] == penstock("run", "show", "r1", "--at", "7").out.splitlines()[0].split()
    assert "running" == json.loads(penstock("run", "show", "r1", "--at", "7", "--json").out)["status"]
    assert "completed" == json.loads(penstock("run", "show", "r1", "--json").out)["status"]


def test_a_moment_that_is_not_there_is_1_and_no_number_is_2(penstock: Penstock, service: Service) -> None:
    service.on("GET /runs/r1?at=99", Answer(b"at 99 is in the future: the log has 7 events so far\n", 400))
    wanted = (1, "", "Error: at 99 is in the future: the log has 7 events so far\n")
    assert wanted == penstock("run", "show", "r1", "--at", "99")
    for bad in ("-1", "x", "1.5"):
        assert 2 == penstock("run", "show", "r1", "--at", bad).code


def test_two_runs_are_compared_in_a_table(penstock: Penstock, service: Service) -> None:
    service.on("GET /runs/r1/diff/r2", DIFF)
    lines = [line.split() for line in penstock("run", "diff", "r1", "r2").out.splitlines()]
    assert ["(run)", "differs", "status,"] == lines[1][:3]
    assert "\x1b" not in penstock("run", "diff", "r1", "r2").out
    assert ["same", "same"] == lines[2]
    assert ["other", "differs", "output"] == lines[3]
    assert ["gone", "differs", "only", "in", "the", "first"] == lines[4]
    assert ["new", "differs", "only", "in", "the", "second"] == lines[5]
    assert ["same", "other", "gone", "new"] == list(
        json.loads(penstock("run", "diff", "r1", "r2", "--json").out)["steps"]
    )


def test_a_graph_is_drawn_with_statuses_and_in_two_languages(penstock: Penstock, service: Service) -> None:
    service.on("GET /runs/r1/graph", GRAPH)
    drawn = penstock("run", "graph", "r1").out
    assert all(text in drawn for text in ("a · completed", "b", "running"))
    assert "a · completed" in penstock("run", "graph", "r1", "--mermaid").out
    assert penstock("run", "graph", "r1", "--mermaid").out != drawn
    assert penstock("run", "graph", "r1", "--dot").out.startswith("digraph")
    assert GRAPH["edges"] == json.loads(penstock("run", "graph", "r1", "--json").out)["edges"]


def test_an_export_is_written_as_it_comes_and_imported_as_it_is(
    penstock: Penstock, service: Service, tmp_path: Path
) -> None:
    service.on("GET /runs/r1/export", Answer(EXPORT))
    service.on("POST /runs/import", IMPORTED)
    path = tmp_path / "run.json"
    assert EXPORT.decode() == penstock("run", "export", "r1").out.strip()
    assert (0, "", f"{len(EXPORT)} bytes written to {path}\n") == penstock("run", "export", "r1", "-o", str(path))
    assert EXPORT == path.read_bytes()
    assert (0, "r1  w  completed, 4 events\n", "") == penstock("run", "import", str(path))
    assert IMPORTED == json.loads(penstock("run", "import", str(path), "--json").out)
    assert [EXPORT] * 2 == [request.body for request in service.requests if request.line == "POST /runs/import"]


def test_a_file_that_cannot_be_written_is_named(penstock: Penstock, service: Service, tmp_path: Path) -> None:
    service.on("GET /runs/r1/export", Answer(EXPORT))
    path = tmp_path / "none" / "run.json"
    failed = penstock("run", "export", "r1", "-o", str(path))
    assert (2, "", True) == (failed.code, failed.out, f"{path} cannot be written: No such file" in failed.err)


def test_what_had_not_ended_at_a_moment_took_no_time_that_is_known(penstock: Penstock, service: Service) -> None:
    began = "2026-01-01T00:00:00Z"
    steps = {
        "ended": {"status": "completed", "attempts": 1, "started_at": began, "finished_at": "2026-01-01T00:00:05Z"},
        "open": {"status": "running", "attempts": 1, "started_at": began},
    }
    service.on("GET /runs/r1?at=7", {**RUN, "started_at": began, "steps": steps})
    *fields, ended, open_ = penstock("run", "show", "r1", "--at", "7").out.splitlines()
    assert not [line for line in fields if line.startswith("took")]
    assert ["ended", "completed", "1", "5.0s"] == ended.split()
    assert ["open", "running", "1"] == open_.split()


def test_what_a_run_repeats_is_imported_and_was_done_by_hand_is_shown(penstock: Penstock, service: Service) -> None:
    steps = {"s1": {"status": "completed", "attempts": 2, "worker_id": "w1", "overridden": True, "output": 1}}
    more = {"rerun_of": "r0", "rerun_from": "s1", "imported": True, "status": "completed"}
    service.on("GET /runs/r1", {**RUN, **more, "steps": steps})
    shown = [line.split() for line in penstock("run", "show", "r1").out.splitlines()]
    assert ["rerun", "of", "r0"] in shown
    assert ["rerun", "from", "s1"] in shown
    assert ["imported", "yes:"] in [line[:2] for line in shown]
    assert ["s1", "completed", "2", "by", "hand", "1"] == shown[-1]


def test_an_import_that_is_refused_is_1_with_every_problem(
    penstock: Penstock, service: Service, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"{}")
    service.on("POST /runs/import", Answer(b"events is empty\ndefinition: no\n", 400))
    assert (1, "", "Error: events is empty\ndefinition: no\n") == penstock("run", "import", str(path))
    assert 2 == penstock("run", "import", str(tmp_path / "none.json")).code


def test_a_run_that_is_not_there_is_1(penstock: Penstock, service: Service) -> None:
    for line in ("diff/r2", "graph", "export"):
        service.on(f"GET /runs/r1/{line}", Answer(b"run r1 does not exist\n", 404))
    for words in (("diff", "r1", "r2"), ("graph", "r1"), ("export", "r1")):
        assert (1, "", "Error: run r1 does not exist\n") == penstock("run", *words)
