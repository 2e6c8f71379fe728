"""Waits that are longer than the events of a run are kept: refused with all other problems, or they fail their step."""

from __future__ import annotations

import pytest

from penstock.engine.errors import Invalid
from penstock.engine.run.state import StepStatus
from penstock.engine.validation import parse, problems
from tests.engine.build import EPOCH, Play, approval, step, workflow

TWO_DAYS_S = 48 * 3600.0
KEPT = "is longer than history_max_age (48h) keeps the run's events"


def wait(timeout: str) -> dict[str, object]:
    return {"id": "w", "type": "wait_for_event", "config": {"event": "paid", "timeout": timeout}}


def retry(attempts: int, delay: str, **fields: object) -> dict[str, object]:
    return {"max_attempts": attempts, "initial_delay": delay, **fields}


LONG = retry(1, "72h")
LONGEST = "its longest delay, 79h12m, " + KEPT


def refusals(*steps: object, **fields: object) -> list[str]:
    with pytest.raises(Invalid) as refused:
        parse({"name": "w", "steps": list(steps), **fields}, history_age_s_max=TWO_DAYS_S)
    return list(refused.value.problems)


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        (wait("72h"), f'step "w": config: timeout 72h {KEPT}'),
        (approval("ok", config={"timeout": "72h"}), f'step "ok": config: timeout 72h {KEPT}'),
        (approval("ok", timeout="72h"), f'step "ok": timeout 72h {KEPT}'),
        (step("a", retry=LONG), f'step "a": retry: {LONGEST}'),
        (step("a", retry=retry(3, "20h", strategy="linear")), f'step "a": retry: its longest delay, 66h, {KEPT}'),
        (step("a", on_failure={"task": "H", "retry": LONG}), f'step "a": on_failure: retry: {LONGEST}'),
        (step("a", compensate={"task": "U", "retry": LONG}), f'step "a": compensate: retry: {LONGEST}'),
    ],
)
def test_a_wait_that_outlasts_the_history_is_refused(definition: dict[str, object], problem: str) -> None:
    assert [problem] == refusals(definition)
    assert [] == problems({"name": "w", "steps": [definition]})


def test_all_are_named_with_all_other_problems() -> None:
    found = refusals(wait("72h"), step("a", retry=LONG), {"id": "x"}, default_retry=LONG)

    assert [f"default_retry: {LONGEST}", f'step "w": config: timeout 72h {KEPT}', f'step "a": retry: {LONGEST}'] == [
        one for one in found if KEPT in one
    ]
    assert 4 == len(found)


@pytest.mark.parametrize(
    "definition",
    [
        wait("48h"),
        approval("ok", timeout="72h", config={"timeout": "1h"}),
        approval("ok"),
        step("a", retry=retry(9, "10h", strategy="exponential", max_delay="20h")),
        step("a", retry=retry(0, "72h")),
        step("a", retry=retry(9, "1h", max_delay="72h")),
        step("a", timeout="72h"),
    ],
)
def test_what_ends_in_time_or_bounds_work_only_is_not_refused(definition: dict[str, object]) -> None:
    parse({"name": "w", "steps": [definition], "timeout": "99h"}, history_age_s_max=TWO_DAYS_S)


@pytest.mark.parametrize(("age_s", "status"), [(3600.0, StepStatus.RUNNING), (3599.0, StepStatus.FAILED)])
def test_a_wait_that_begins_all_the_same_fails_its_step_if_it_outlasts_the_history(
    age_s: float, status: StepStatus
) -> None:
    play = Play(workflow(wait("1h")), history_age_s_max=age_s)

    play.carry_out(play.start())

    assert status is play.step("w").status
    if status is StepStatus.FAILED:
        assert "it would wait until 1970-01-12T14:46:40.000000Z, which is longer" in (play.step("w").error or "")
        assert EPOCH == play.now
