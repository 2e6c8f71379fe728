"""Steps that sleep: until when is worked out as they begin, and a timer ends them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.engine.errors import Invalid
from penstock.engine.run.commands import BeginStep, SetTimer, WithdrawTimer
from penstock.engine.run.state import StepStatus
from penstock.engine.run.timers import asleep_until
from penstock.engine.validation import parse, problems
from tests.engine.build import EPOCH, Play, dispatched, step, workflow

GIVEN = {"wait": "1h", "until": 2_000_000_000, "number": 1.5}


def sleep(step_id: str, *depends_on: str, **config: object) -> dict[str, object]:
    return {"id": step_id, "type": "sleep", "depends_on": list(depends_on), "config": config}


@pytest.mark.parametrize(
    ("config", "wake_at"),
    [
        ({"duration": "90s"}, EPOCH + 90),
        ({"duration": "${{ input.wait }}"}, EPOCH + 3600),
        ({"until": "1970-03-01T00:00:00Z"}, datetime(1970, 3, 1, tzinfo=UTC).timestamp()),
        ({"until": "${{ input.until }}"}, 2_000_000.0),
        ({"until": "1970-01-01T00:00:00Z"}, 0.0),
    ],
)
def test_it_sleeps_until_its_time_and_then_its_dependents_begin(config: dict[str, object], wake_at: float) -> None:
    play = Play(workflow(sleep("nap", **config), step("b", "nap")))

    [begin] = play.start(GIVEN)
    [timer] = play.carry_out([begin])

    assert isinstance(begin, BeginStep)
    assert timer == SetTimer("sleep.nap", wake_at, "nap", 1)
    assert (play.step("nap").status, play.step("nap").wake_at) == (StepStatus.RUNNING, wake_at)
    assert dispatched(play.fire("sleep.nap", "nap", 1)) == [("b", 1)]
    assert play.fire("sleep.nap", "nap", 1) == []


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"duration": "${{ input.number }}"}, "config.duration gives a number, not a duration such as 30s"),
        ({"until": "${{ input.wait }}"}, "config.until: '1h' is not an RFC 3339 time"),
        ({"until": "2999-01-01T00:00:00Z"}, "a sleep may last 8760h at the most"),
        ({"duration": "${{ input.nothing }}"}, "nothing"),
    ],
)
def test_what_is_no_time_fails_the_step_for_good(config: dict[str, object], error: str) -> None:
    play = Play(workflow(sleep("nap", **config)))

    play.carry_out(play.start(GIVEN))

    assert play.run.status == "failed"
    assert error in (play.step("nap").error or "")


@pytest.mark.parametrize("config", [{"duration": "${{ input.wait }}"}, {"until": "1970-01-12T14:46:40Z"}])
def test_a_sleep_that_outlasts_the_history_fails_the_step_for_good(config: dict[str, object]) -> None:
    definition = workflow(sleep("nap", **config))
    kept, lost = Play(definition, history_age_s_max=3600.0), Play(definition, history_age_s_max=3599.0)

    for play in (kept, lost):
        play.carry_out(play.start(GIVEN))

    assert (kept.step("nap").status, kept.step("nap").wake_at) == (StepStatus.RUNNING, EPOCH + 3600)
    assert (lost.run.status, lost.step("nap").attempts) == ("failed", 1)
    assert lost.step("nap").error == (
        "it would sleep until 1970-01-12T14:46:40.000000Z, "
        "which is longer than history_max_age (59m59s) keeps the run's events"
    )


def test_a_constant_sleep_that_outlasts_the_history_is_refused_with_all_other_problems() -> None:
    steps = [sleep("nap", duration="72h"), sleep("short", duration="48h"), sleep("late", until="2999-01-01T00:00:00Z")]
    steps += [sleep("given", duration="${{ input.wait }}"), sleep("ns", duration=72 * 3600 * 10**9), {"id": "x"}]

    with pytest.raises(Invalid) as refused:
        parse({"name": "w", "steps": steps}, history_age_s_max=48 * 3600.0)

    nap = "config: duration 72h is longer than history_max_age (48h) keeps the run's events"
    found = list(refused.value.problems)
    assert found[-2:] == [f'step "nap": {nap}', f'step "ns": {nap}']
    assert len(found) == 3
    assert problems({"name": "w", "steps": steps[:-1]}) == []


def test_a_cancelled_run_withdraws_the_timer() -> None:
    play = Play(workflow(sleep("nap", duration="1h")))
    play.carry_out(play.start())

    [command] = play.cancel()

    assert command == WithdrawTimer("sleep.nap", play.now + 3600)
    assert play.fire("sleep.nap", "nap", 1) == []


def test_a_resumed_run_sleeps_anew() -> None:
    play = Play(workflow(sleep("nap", duration="1h"), step("b")))
    play.carry_out(play.start())
    play.carry_out(play.fail("b", kind="non_retriable"))

    [begin, _] = play.resume(after=60)
    [timer] = play.carry_out([begin])

    assert timer == SetTimer("sleep.nap", play.now + 3600, "nap", 2)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"config": {}}, "config must hold duration or until, and not both"),
        ({"config": {"duration": "1s", "until": "2030-01-01T00:00:00Z"}}, "config must hold duration or until"),
        ({"config": {"duration": "400d"}}, "is not a duration"),
        ({"config": {"duration": "9000h"}}, "9000h is too long: a sleep may last 8760h at the most"),
        ({"config": {"duration": 9000 * 3600 * 10**9}}, "9000h is too long: a sleep may last 8760h at the most"),
        ({"config": {"until": "tomorrow"}}, "config: until must be an RFC 3339 time"),
        ({"config": {"duration": "1s"}, "task": "t"}, "task is not for a step of this type"),
        ({"config": {"duration": "1s"}, "retry": {"max_attempts": 1}}, "retry is not for a step of this type"),
    ],
)
def test_a_fault_in_it_is_named(fields: dict[str, object], problem: str) -> None:
    [found] = problems({"name": "w", "steps": [{"id": "nap", "type": "sleep", **fields}]})

    assert found.startswith('step "nap": ')
    assert problem in found


def test_a_run_is_asleep_until_its_first_sleep_ends_and_only_while_it_does_nothing_else() -> None:
    play = Play(workflow(sleep("long", duration="2h"), sleep("short", duration="1h"), step("a"), step("b", "short")))
    play.carry_out(play.start())
    assert asleep_until(play.run) is None
    play.begin("a")
    assert asleep_until(play.run) is None

    play.complete("a")
    assert asleep_until(play.run) == EPOCH + 3600
    play.fire("sleep.short", "short", 1)
    assert asleep_until(play.run) is None
    play.begin("b")
    play.complete("b")

    assert asleep_until(play.run) == EPOCH + 7200
    play.fire("sleep.long", "long", 1)
    assert play.step("long").status is StepStatus.COMPLETED
    assert asleep_until(play.run) is None
