"""`penstock workflow`: what is sent about definitions, and how they are shown, drawn and checked."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Answer, Penstock, Service

pytestmark = pytest.mark.usefixtures("empty_directory")

WORKFLOW = {"name": "w", "version": "1", "steps": [{"id": "a", "task": "t", "type": "normal"}]}


def test_workflow_commands_show_what_the_service_has(penstock: Penstock, service: Service, tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text('name = "w"')
    service.on("POST /workflows", {"status": "registered", "name": "w"})
    service.on("GET /workflows", [WORKFLOW])
    service.on("GET /workflows/w", WORKFLOW)
    assert "registered w\n" == penstock("workflow", "register", "w.toml").out
    assert [{"name": "w"}] == service.bodies("POST /workflows")
    assert ["w", "1", "1"] == penstock("workflow", "list").out.splitlines()[1].split()
    assert [WORKFLOW] == json.loads(penstock("workflow", "list", "--json").out)
    assert ["a", "t", "normal"] == penstock("workflow", "show", "w").out.splitlines()[-1].split()


def test_show_draws_the_graph_of_the_service_or_of_a_file(penstock: Penstock, service: Service, tmp_path: Path) -> None:
    steps = [{"id": "a", "task": "t"}, {"id": "ask", "type": "approval", "depends_on": ["a"]}]
    definition = {"name": "w", "version": "2", "steps": steps}
    (tmp_path / "w.json").write_text(json.dumps(definition))
    service.on("GET /workflows/w", definition)
    service.on("GET /workflows/w?version=1", {**definition, "version": "1"})
    picture = [
        "workflow  w",
        "version   2",
        "",
        "       ┌───┐",
        "       │ a │",
        "       └─┬─┘",
        "         ▼",
        "┌────────────────┐",
        "│ ask · approval │",
        "└────────────────┘",
        "",
        "STEP  TASK  TYPE      DEPENDS ON  TIMEOUT",
        "a     t     normal",
        "ask         approval  a",
    ]
    assert picture == penstock("workflow", "show", "w").out.splitlines()
    assert "version   1" == penstock("workflow", "show", "w", "--version", "1").out.splitlines()[1]
    asked = len(service.requests)
    assert picture == penstock("workflow", "show", "-f", "w.json").out.splitlines()
    assert ["flowchart TD", '    n0["a"]'] == penstock(
        "workflow", "show", "-f", "w.json", "--mermaid"
    ).out.splitlines()[:2]
    assert 'digraph "w" {' == penstock("workflow", "show", "-f", "w.json", "--dot").out.splitlines()[0]
    assert (
        definition["steps"][0]["id"]
        == json.loads(penstock("workflow", "show", "-f", "w.json", "--json").out)["steps"][0]["id"]
    )
    assert asked == len(service.requests)


def test_show_says_what_steps_of_each_type_do(penstock: Penstock, service: Service, tmp_path: Path) -> None:
    steps = [
        {"id": "a", "task": "t", "name": "First", "on_failure": {"task": "help"}, "description": "Begins\x1b it"},
        {"id": "ask", "type": "approval", "depends_on": ["a"], "config": {"timeout": "72h"}, "when": "input.n > 1"},
        {"id": "nap", "type": "sleep", "config": {"duration": "24h"}},
        {"id": "kids", "type": "map", "config": {"workflow": "child", "items": "${{ input.all }}"}},
        {"id": "paid", "type": "wait_for_event", "config": {"event": "pay", "correlate": {"field": "id", "value": 1}}},
        {"id": "get", "type": "http", "config": {"url": "https://example.com/"}},
    ]
    (tmp_path / "w.json").write_text(json.dumps({"name": "w", "steps": steps, "on_failure": {"workflow": "alarm"}}))

    lines = penstock("workflow", "show", "-f", "w.json").out.splitlines()

    assert "on failure  alarm" in lines
    assert [re.split(r"  +", line) for line in lines[-7:]] == [
        ["STEP", "NAME", "TASK", "TYPE", "DEPENDS ON", "TIMEOUT", "DETAILS", "WHEN", "HANDLERS", "DESCRIPTION"],
        ["a", "First", "t", "normal", "on_failure: help", "Begins\\x1b it"],
        ["ask", "approval", "a", "72h", "input.n > 1"],
        ["nap", "sleep", "duration 24h"],
        ["kids", "map", "workflow child, items ${{ input.all }}"],
        ["paid", "wait_for_event", "event pay by id"],
        ["get", "http", "GET https://example.com/"],
    ]


@pytest.mark.parametrize(
    "args", [(), ("w", "-f", "w.json"), ("-f", "w.json", "--version", "1"), ("-f", "no-such-file")]
)
def test_show_wants_a_name_or_a_file(
    penstock: Penstock, service: Service, tmp_path: Path, args: tuple[str, ...]
) -> None:
    (tmp_path / "w.json").write_text(json.dumps(WORKFLOW))
    assert 2 == penstock("workflow", "show", *args).code
    assert [] == service.requests


def test_show_names_every_problem_of_a_file(penstock: Penstock, service: Service, tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text('{"name": "w", "steps": [{"id": "a"}]}')
    code, out, err = penstock("workflow", "show", "-f", "w.json")
    assert (1, "") == (code, out)
    assert 'step "a"' in err


def test_register_tells_warnings_beside_its_answer(penstock: Penstock, service: Service, tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text('name = "w"')
    service.on("POST /workflows", {"status": "registered", "name": "w", "warnings": ["no\x1b worker", "two"]})
    assert (0, "registered w\n", "Warning: no\\x1b worker\nWarning: two\n") == penstock(
        "workflow", "register", "w.toml"
    )
    code, out, err = penstock("workflow", "register", "w.toml", "--json")
    assert (0, ["no\x1b worker", "two"], "") == (code, json.loads(out)["warnings"], err)


def test_versions_are_listed_and_a_workflow_is_deleted(penstock: Penstock, service: Service) -> None:
    found = [
        {"version": version, "digest": version * 32, "registered_at": "2026-01-01T00:00:00.5Z"} for version in "21"
    ]
    service.on("GET /workflows/w/versions", found)
    service.on("DELETE /workflows/w", Answer(b"one\ntwo\n", 409))
    service.on("DELETE /workflows/w?force=true", {"name": "w", "status": "deleted"})
    assert [
        "VERSION  REGISTERED            DIGEST",
        f"2        2026-01-01T00:00:00Z  {'2' * 32}",
        f"1        2026-01-01T00:00:00Z  {'1' * 32}",
    ] == penstock("workflow", "versions", "w").out.splitlines()
    assert found == json.loads(penstock("workflow", "versions", "w", "--json").out)
    assert (1, "", "Error: one\ntwo\n") == penstock("workflow", "delete", "w")
    assert (0, "deleted w\n", "") == penstock("workflow", "delete", "w", "--force")


def test_validate_needs_no_service_and_names_every_problem(
    penstock: Penstock, service: Service, tmp_path: Path
) -> None:
    file = tmp_path / "w.json"
    file.write_text(json.dumps(WORKFLOW))
    assert (0, "valid: w, version 1, 1 step\n", "") == penstock("workflow", "validate", str(file))
    file.write_text(json.dumps({"name": "w", "steps": [{"id": "b", "task": "t", "depends_on": ["x"]}, {"id": "c"}]}))
    code, _, err = penstock("workflow", "validate", str(file))
    assert 1 == code
    assert 'step "b" depends on "x", which does not exist' in err
    assert 'step "c"' in err
    assert [] == service.requests


def test_validate_explains_expressions_of_what_is_valid_or_not(
    penstock: Penstock, service: Service, tmp_path: Path
) -> None:
    steps = [
        {"id": "a", "task": "t", "when": "input.n > 1"},
        {
            "id": "b",
            "task": "t",
            "depends_on": ["a"],
            "with": {"of": "${{ steps.a.output }}", "id": "for ${{ run.id }}"},
        },
    ]
    (tmp_path / "w.json").write_text(json.dumps({"name": "w", "steps": steps}))
    assert (
        0,
        "STEP  FIELD    EXPRESSION      READS           PROBLEM\n"
        "a     when     input.n > 1     input\n"
        "b     with.of  steps.a.output  steps.a.output\n"
        "b     with.id  run.id          run\n"
        "\n"
        "valid: w, version 1, 2 steps\n",
        "",
    ) == penstock("workflow", "validate", "w.json")
    found = json.loads(penstock("workflow", "validate", "w.json", "--json").out)
    assert {"step": "a", "field": "when", "expression": "input.n > 1", "reads": ["input"]} == found["expressions"][0]
    (tmp_path / "w.json").write_text(json.dumps({"name": "w", "steps": [{**steps[0], "when": "nobody > 1"}]}))
    code, out, err = penstock("workflow", "validate", "w.json")
    row = out.splitlines()[1]
    assert (1, True, True) == (code, row.startswith("a     when   nobody > 1"), "nobody" in err)
    problem = row.partition("column ")[2]
    assert problem
    assert problem in err
    assert "valid" not in out
    assert [] == service.requests


def test_a_workflow_in_python_is_exported_and_linted(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "exported_app.py").write_text(
        "from penstock import Workflow\nflow = Workflow('w')\nflow.step('pay', retries=2)\nother = 7\n"
    )
    definition = {"name": "w", "steps": [{"id": "pay", "task": "pay", "retries": 2}]}

    assert definition == json.loads(penstock("workflow", "export", "exported_app:flow").out)
    assert "" == penstock("workflow", "export", "exported_app:flow", "--out", "w.json").out
    assert definition == json.loads((tmp_path / "w.json").read_text())
    for target in ("exported_app:flow", "w.json"):
        linted = penstock("workflow", "lint", target)
        assert (1, '"pay" is retried' in linted.out) == (linted.code, True)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("nowhere:flow", "there is no module nowhere"),
        ("named_app:flw", "module named_app has no flw; its workflows: flow"),
        ("named_app:other", "named_app:other is no workflow, but int; its workflows: flow"),
        ("broken_app:flow", "module broken_app cannot be loaded: ZeroDivisionError: division by zero"),
        ("named_app", "is no module with a name in it"),
    ],
)
def test_what_is_no_workflow_in_python_is_refused_with_the_reason(
    penstock: Penstock, tmp_path: Path, target: str, problem: str
) -> None:
    (tmp_path / "named_app.py").write_text("from penstock import Workflow\nflow, other = Workflow('w'), 7\n")
    (tmp_path / "broken_app.py").write_text("1 / 0\n")

    refused = penstock("workflow", "export", target)

    assert refused.code != 0
    assert problem in refused.err
