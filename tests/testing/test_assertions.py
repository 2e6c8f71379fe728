"""What the test kit says when a run is not as it should be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock.engine.errors import CallFailed, Conflict
from penstock.testing import (
    TestRun,
    TestService,
    assert_absent,
    assert_attempts,
    assert_completed,
    assert_failed,
    assert_happened,
    assert_steps,
    assert_waits,
)

FLOW = {"name": "f", "steps": [{"id": "a", "task": "t", "retries": 1}, {"id": "b", "task": "t", "depends_on": ["a"]}]}
WRONG: list[tuple[Callable[[TestRun], Any], str]] = [
    (lambda run: assert_completed(run, 2), "the output should be 2, it is 1"),
    (lambda run: assert_failed(run), "the run should have failed, it is completed"),
    (lambda run: assert_steps(run, a="failed", b="completed"), "a should be failed, it is completed"),
    (lambda run: assert_attempts(run, "a", 1), "step 'a' should have begun 1 times, it has 2 times"),
    (
        lambda run: assert_happened(run, "step.started b", "step.failed a"),
        "'step.failed a' should have happened after 'step.started b'",
    ),
    (lambda run: assert_absent(run, "step.failed"), "'step.failed' should not have happened, it is event 2"),
    (lambda run: assert_waits(run, "b"), "the run should wait at step 'b', it is completed"),
]


@pytest.mark.parametrize(("check", "text"), WRONG)
def test_a_failed_assertion_says_what_was_expected_and_shows_the_history(
    check: Callable[[TestRun], Any], text: str
) -> None:
    with TestService(tasks={"t": lambda value: value}) as service:
        service.fail("a", "no luck")
        run = service.start(FLOW, 1)
        service.advance("1m")
        with pytest.raises(AssertionError, match=re.escape(text)) as raised:
            check(run)
        assert 'step.failed a: "no luck"' in str(raised.value)
        assert_happened(run, "step.failed a", "step.completed a", "step.completed b")


def test_a_run_that_has_no_output_shows_its_history() -> None:
    with TestService() as service:
        run = service.start(FLOW)
        with pytest.raises(Conflict, match="the run has no output yet, it is running"):
            _ = run.output
        service.answer("a", ValueError("broken"))
        service.advance("1m")
        with pytest.raises(CallFailed, match="ValueError: broken") as raised:
            _ = run.output
        assert "step.failed a attempt 2" in str(raised.value)


def test_scripted_things_that_never_happened_are_named() -> None:
    with TestService(tasks={"t": lambda value: value}) as service:
        service.fail("a", times=2)
        service.fail("chrage")
        service.start({"name": "one", "steps": [{"id": "a", "task": "t", "retries": 0}]})
        assert service.unused == ["a", "chrage"]
        service.forget("chrage")
        assert service.unused == ["a"]
