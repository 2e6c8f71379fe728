"""Storms of the test kit: what they find, and that they find it again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from penstock.engine.errors import Invalid
from penstock.testing import TestRun, TestService, storm
from penstock.testing.storms.faults import FaultKind

RETRY = {"max_attempts": 3, "strategy": "fixed", "initial_delay": "1s"}
ORDER = {
    "name": "order",
    "steps": [
        {"id": "charge", "task": "charge", "retry": RETRY},
        {"id": "thank", "task": "thank", "depends_on": ["charge"], "retry": RETRY},
    ],
}
ASKED = {"name": "asked", "steps": [{"id": "ask", "type": "approval", "config": {"timeout": "24h"}}]}
TOLD = {"name": "told", "steps": [{"id": "wait", "type": "wait_for_event", "config": {"event": "paid"}}]}


def same(value: Any) -> Any:
    return value


def functions(charge: Callable[..., Any] = same) -> dict[str, Callable[..., Any]]:
    return {"charge": charge, "thank": same}


def test_a_workflow_that_stands_it_is_run_with_every_seed_and_every_fault() -> None:
    found = storm(ORDER, 7, tasks=functions(), seeds=300)
    assert found.seeds == 300
    assert found.statuses == {"completed": 300}
    assert found.faults.keys() == {kind.value for kind in FaultKind} - {"cancel"}


def test_a_function_that_must_be_called_only_once_is_found_with_the_one_fault_that_matters() -> None:
    paid: list[int] = []

    def paid_once(run: TestRun) -> None:
        assert len(paid) == 1, f"paid {len(paid)} times"

    with pytest.raises(AssertionError) as caught:
        storm(ORDER, 7, tasks=functions(paid.append), before=paid.clear, check=paid_once)
    said = str(caught.value).splitlines()
    assert said[0].endswith("breaks it: paid 2 times")
    at = said.index("What breaks it:")
    assert said[at + 1].startswith("  delivery 1 of step 'charge' ")
    assert said[at + 2].startswith("  +0s         workflow.started")
    seed = int(said[0].split()[1])
    assert said[-1] == f"Once more: seeds=[{seed}]"
    with pytest.raises(AssertionError) as again:
        storm(ORDER, 7, tasks=functions(paid.append), before=paid.clear, check=paid_once, seeds=[seed])
    assert str(again.value) == str(caught.value)
    others = set(FaultKind) - {FaultKind.LOSE_AFTER_CALL, FaultKind.TWICE, FaultKind.CANCEL}
    found = storm(ORDER, 7, tasks=functions(paid.append), before=paid.clear, check=paid_once, faults=others)
    assert found.statuses == {"completed": 1000}


def test_an_output_that_depends_on_what_goes_wrong_is_found() -> None:
    draw = Random(0)
    with pytest.raises(AssertionError, match=r"seed 0 breaks it: the output is 0.*, without faults it is 0"):
        storm(ORDER, 7, tasks=functions(lambda order: draw.random()))
    assert storm(ORDER, 7, tasks=functions(lambda order: draw.random()), same_output=False).seeds == 1000


def test_people_decide_late_against_it_or_not_at_all() -> None:
    found = storm(ASKED, seeds=300)
    assert found.statuses["completed"] > found.statuses["failed"] > 0


def test_a_run_that_waits_for_what_nobody_sends_is_wrong_without_any_fault() -> None:
    with pytest.raises(AssertionError, match="without any fault: the run does not end") as caught:
        storm(TOLD)
    assert "workflow.started" in str(caught.value)


def test_the_test_sends_what_a_run_waits_for() -> None:
    def pay(service: TestService, run: TestRun) -> None:
        service.after("1h", lambda: service.send_event("paid", 7))

    found = storm(TOLD, drive=pay, faults=["cancel", "pause"], seeds=200)
    assert found.statuses["completed"] > found.statuses["cancelled"] > 0


def test_an_unknown_fault_is_named() -> None:
    with pytest.raises(Invalid, match="flood: no such fault; there are fail, lose"):
        storm(ORDER, faults=["flood"])


def test_a_task_is_lost_after_its_function_was_called() -> None:
    paid: list[int] = []
    with TestService(ORDER, tasks=functions(paid.append)) as service:
        service.lose("charge", after_call=True)
        run = service.start("order", 7)
        assert (paid, run.status) == ([7], "running")
        service.advance("30s")
        assert (paid, run.status) == ([7, 7], "completed")
