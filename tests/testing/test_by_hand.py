"""What an operator does to a run of the test kit by hand."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine.errors import Conflict, NotFound
from penstock.testing import TestService, assert_attempts, assert_completed, assert_happened, assert_steps

RETRY = {"max_attempts": 1, "strategy": "fixed", "initial_delay": "1h"}
FLOW: dict[str, Any] = {
    "name": "order",
    "steps": [
        {"id": "charge", "task": "charge", "retry": RETRY},
        {"id": "thank", "task": "thank", "depends_on": ["charge"], "with": "${{ steps.charge.output }}"},
    ],
}
TASKS = {"charge": lambda order: order["id"], "thank": lambda paid: f"thanks for {paid}"}


def test_a_step_is_completed_by_hand_and_the_run_goes_on_with_that() -> None:
    with TestService(FLOW, tasks={"thank": TASKS["thank"]}) as service:
        run = service.start("order", {"id": 7})
        assert "running" == run.status
        run.skip("charge", 8)
        assert_completed(run, "thanks for 8")
        assert_happened(run, "step.overridden charge", "step.completed thank")


def test_a_failed_run_goes_on_with_a_step_that_is_completed_by_hand() -> None:
    with TestService(FLOW, tasks=TASKS) as service:
        service.fail("charge", failure_type="non_retriable")
        run = service.start("order", {"id": 7})
        assert "failed" == run.status
        run.skip("charge", 9)
        assert_completed(run, "thanks for 9")
        assert_happened(run, "workflow.failed", "workflow.resumed", "step.overridden charge")
        assert_attempts(run, "charge", 1)


def test_an_attempt_begins_before_its_time() -> None:
    with TestService(FLOW, tasks=TASKS) as service:
        service.fail("charge")
        run = service.start("order", {"id": 7})
        assert "running" == run.status
        run.retry("charge")
        assert_completed(run, "thanks for 7")
        service.advance("1d")  # the timer comes all the same
        assert_attempts(run, "charge", 2)
        assert_steps(run, charge="completed", thank="completed")


def test_a_run_with_a_limit_goes_on_when_it_has_its_slot() -> None:
    limited = {**FLOW, "concurrency": [{"limit": 1}]}
    with TestService(limited, tasks=TASKS) as service:
        service.fail("charge", failure_type="non_retriable")
        run = service.start("order", {"id": 1})
        service.delay("charge", "1h")
        other = service.start("order", {"id": 2})
        run.skip("charge", 3)
        assert "pending" == run.status
        service.advance("2h")
        assert_completed(other, "thanks for 2")
        assert_completed(run, "thanks for 3")


@pytest.mark.parametrize(
    ("do", "kind", "problem"),
    [
        (lambda run: run.skip("thank"), Conflict, "charge"),
        (lambda run: run.skip("nobody"), NotFound, 'no step "nobody": it has "charge", "thank"'),
        (lambda run: run.retry("charge"), Conflict, 'step "charge" does not wait for its next attempt: it is'),
        (lambda run: run.retry("nobody"), NotFound, 'no step "nobody"'),
        (lambda run: run.retry(), Conflict, "the run is running, only a failed one can be resumed"),
    ],
)
def test_what_the_service_refuses_is_refused(do: Any, kind: type[Exception], problem: str) -> None:
    with TestService(FLOW, tasks={"thank": TASKS["thank"]}) as service:
        run = service.start("order", {"id": 7})
        before = run.history
        with pytest.raises(kind, match=problem):
            do(run)
        assert before == run.history


def test_what_has_completed_is_not_completed_again() -> None:
    with TestService(FLOW, tasks=TASKS) as service:
        service.fail("thank", failure_type="non_retriable")
        run = service.start("order", {"id": 7})
        with pytest.raises(Conflict, match='step "charge" is completed'):
            run.skip("charge")
        run.skip("thank", "done")
        assert_completed(run, "done")
        with pytest.raises(Conflict, match="has completed already"):
            run.skip("thank")
