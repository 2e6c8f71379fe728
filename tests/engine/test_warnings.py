"""What a definition is warned of: one row for each thing, and nothing where nothing is to be told."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine import warnings as module
from penstock.engine.validation import parse
from penstock.engine.warnings import WARNINGS_MAX, Facts, named_in, warnings


def told(*steps: dict[str, Any], served: set[tuple[str, str | None]]) -> list[str]:
    return warnings(parse({"name": "w", "steps": list(steps)}), Facts(served))


def step(number: int, task: str = "t", **more: Any) -> dict[str, Any]:
    return {"id": f"s{number}", "task": task, **more}


def test_a_served_workflow_is_warned_of_nothing() -> None:
    assert [] == told(step(0), step(1, worker_group="g"), served={("t", None), ("t", "g")})


def test_a_task_that_no_worker_serves_is_named_with_its_steps_once() -> None:
    assert ['step "s0": no worker serves task "t" now; it waits for one'] == told(step(0), served={("u", None)})
    assert ['steps "s0", "s1", "s2" and 2 more: no worker serves task "t" now; it waits for one'] == told(
        *(step(number) for number in range(5)), step(5, "u"), served={("u", None)}
    )


@pytest.mark.parametrize("served", [{("t", None)}, {("t", "other")}])
def test_a_worker_of_another_group_does_not_serve_a_step_of_a_group(served: set[tuple[str, str | None]]) -> None:
    assert ['step "s0": no worker of worker group "g" serves task "t" now; it waits for one'] == told(
        step(0, worker_group="g"), served=served
    )


def test_a_request_needs_the_worker_of_requests() -> None:
    request = {"id": "call", "type": "http", "config": {"url": "https://api.example.com/"}}
    (warning,) = told(request, served={("t", None)})
    assert warning.startswith('step "call": no worker serves task "penstock.http" now; it waits for one (`penstock wor')
    assert [] == told(request, served={("penstock.http", None)})


def test_a_step_without_a_task_needs_no_worker() -> None:
    for more in ({}, {"task": "ask"}):
        assert [] == told({"id": "ask", "type": "approval", **more}, served=set())


def test_an_expression_that_may_go_over_a_bound_is_named_with_its_place() -> None:
    nested = "input.a.all(x, input.b.exists(y, x == y))"
    found = told(step(0, when=nested), step(1, **{"with": {"deep": f"${{{{ {nested} }}}}"}}), served={("t", None)})
    assert ['step "s0": when: column ', 'step "s1": with.deep: column '] == [
        text[: text.index("column ") + 7] for text in found
    ]


def test_warnings_are_bounded_and_the_rest_is_counted() -> None:
    found = told(*(step(number, f"t{number}") for number in range(WARNINGS_MAX + 7)), served=set())
    assert WARNINGS_MAX + 1 == len(found)
    assert "7 more warnings" == found[-1]


def test_a_row_of_the_table_is_all_that_another_warning_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKS", (*module.CHECKS, lambda definition, facts: iter([definition.name])))
    assert ["w"] == told(step(0), served={("t", None)})


def test_a_child_workflow_that_is_not_there_is_named() -> None:
    steps = [
        {"id": "a", "type": "sub_workflow", "config": {"workflow": "gone"}},
        {"id": "b", "type": "map", "config": {"workflow": "gone"}},
        {"id": "c", "type": "sub_workflow", "config": {"workflow": "there"}},
        {"id": "d", "type": "sub_workflow", "config": {"workflow": "w"}},
    ]
    definition = parse({"name": "w", "steps": steps})

    assert named_in(definition) == {"gone", "there"}
    assert warnings(definition, Facts(set(), {"gone"})) == [
        'steps "a", "b": workflow "gone" is not registered now; without it the step fails'
    ]


@pytest.mark.parametrize(("handler", "named"), [("alarm", {"alarm"}), ("w", set())])
def test_a_workflow_that_follows_failed_runs_and_is_not_there_is_named(handler: str, named: set[str]) -> None:
    definition = parse({"name": "w", "steps": [step(0)], "on_failure": {"workflow": handler}})
    served = {("t", None)}

    assert named_in(definition) == named
    assert warnings(definition, Facts(served)) == []
    assert warnings(definition, Facts(served, named)) == [
        f'on_failure: workflow "{name}" is not registered now; without it nothing is started when a run fails'
        for name in named
    ]
