"""An answer that says when its worker began stands for two events: the start, and the answer behind it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.engine.run.commands import CancelTask, SetTimer, WithdrawTimer
from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.events import (
    Record,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepStarted,
    WorkflowStarted,
    decode,
    encode,
)
from penstock.engine.run.execution.deliveries import began_at, start_in
from penstock.engine.run.timers import live_timers
from penstock.engine.times import rfc3339
from tests.engine.build import EPOCH, RUN_ID, Play, appended, dispatched, loop, only, raw, started, step, workflow

SLOW = workflow(step("a", timeout="10s", retry={"max_attempts": 1}), step("b", "a"))
BEGAN = EPOCH + 0.5


def answer(
    kind: type[Any], step_id: str = "a", *, at: float = EPOCH + 1, began: str | float = BEGAN, **more: Any
) -> Any:
    began_ = began if isinstance(began, str) else rfc3339(began)
    given = {"worker_id": "one", "attempt_number": 1, "started_at": began_, **more}
    return kind(run_id=RUN_ID, step_id=step_id, timestamp=rfc3339(at), **given)


def completed(step_id: str = "a", **more: Any) -> StepCompleted:
    return answer(StepCompleted, step_id, payload=raw(7), **more)


def both(play: Play, event: Any) -> Play:
    """Another play that is told the start and the answer apart."""
    other = Play(play.workflow)
    for one in play.log:
        other.tell(one.event)
    start = start_in(Record(0, play.now, event)).event
    other.tell(start)
    other.tell(replace(event, started_at=None, delivery=1))
    return other


def test_a_completion_shows_when_its_worker_began_and_what_follows_is_ordered() -> None:
    play = started(SLOW)
    commands = play.tell(completed())
    found = play.step("a")
    assert ("completed", rfc3339(BEGAN), rfc3339(EPOCH + 1), "one") == (
        found.status,
        found.started_at,
        found.finished_at,
        found.worker_id,
    )
    assert [("b", 1)] == dispatched(commands)


def test_no_timer_is_set_that_would_be_withdrawn_at_once() -> None:
    play = started(SLOW)
    commands = play.tell(completed())
    assert [] == [one for one in commands if isinstance(one, SetTimer | WithdrawTimer)]
    assert [] == live_timers(play.run)


def test_the_deadline_of_a_loop_stays_when_its_first_iteration_is_answered_at_once() -> None:
    play = started(workflow(loop("a", config={"max_duration": "1m"}, timeout="10s")))
    commands = play.tell(answer(StepContinue))
    assert ["loop.a"] == [timer.timer for timer in only(SetTimer, commands)]
    assert ["loop.a"] == [timer.timer for timer in live_timers(play.run)]
    assert ("queued", 1) == (play.step("a").status, play.step("a").iteration)


@pytest.mark.parametrize("kind", [StepCompleted, StepFailed, StepContinue])
def test_the_state_is_that_of_the_two_events(kind: type[Any]) -> None:
    play = started(workflow(loop("a", config={"max_iterations": 3}, timeout="10s", retry={"max_attempts": 1})))
    event = answer(kind)
    other = both(play, event)
    play.tell(event)
    assert replace(other.run, seq=0) == replace(play.run, seq=0)


def test_a_failure_is_retried_and_the_next_attempt_has_a_start_of_its_own() -> None:
    play = started(SLOW)
    assert [("a", 2)] == dispatched(play.tell(answer(StepFailed, payload=Failure("boom"))))
    play.tell(completed(attempt_number=2, began=EPOCH + 3, at=EPOCH + 4))
    assert ("completed", rfc3339(EPOCH + 3)) == (play.step("a").status, play.step("a").started_at)


def test_an_answer_behind_a_start_changes_nothing_of_it() -> None:
    play = started(SLOW)
    play.tell(StepStarted(run_id=RUN_ID, step_id="a", timestamp=rfc3339(EPOCH), worker_id="one", attempt_number=1))
    play.tell(completed())
    assert ("completed", rfc3339(EPOCH)) == (play.step("a").status, play.step("a").started_at)


def test_an_answer_that_took_longer_than_the_timeout_is_one() -> None:
    play = started(SLOW)
    commands = play.tell(completed(began=EPOCH, at=EPOCH + 10.5))
    assert [("a", 2)] == dispatched(commands)
    assert "step timeout exceeded (10s)" == play.step("a").error


def test_an_answer_within_the_timeout_counts_however_late_it_is_stored() -> None:
    play = started(SLOW)
    play.tell(completed(began=EPOCH, at=EPOCH + 10), after=60)
    assert "completed" == play.step("a").status


def test_where_the_start_was_told_its_timer_decides() -> None:
    play = started(SLOW)
    play.tell(StepStarted(run_id=RUN_ID, step_id="a", timestamp=rfc3339(EPOCH), worker_id="one", attempt_number=1))
    play.tell(completed(began=EPOCH - 60))
    assert "completed" == play.step("a").status


@pytest.mark.parametrize("began", ["", "yesterday", "2026-13-01T00:00:00Z", rfc3339(EPOCH + 5)])
def test_a_time_that_is_none_or_lies_after_the_answer_becomes_the_answers(began: str) -> None:
    play = started(SLOW)
    play.tell(completed(began=began), after=2)
    assert ("completed", rfc3339(EPOCH + 1)) == (play.step("a").status, play.step("a").started_at)


def test_an_offset_becomes_utc() -> None:
    play = started(SLOW)
    play.tell(completed(began="1970-01-12T15:46:40.5+02:00"))
    assert rfc3339(BEGAN) == play.step("a").started_at


def test_a_late_answer_is_ignored_and_tells_its_worker_nothing() -> None:
    play = started(SLOW)
    play.tell(completed())
    before = play.run
    assert [] == play.tell(completed())
    assert [] == play.tell(answer(StepFailed, attempt_number=9))
    assert before is play.run
    play.cancel()
    assert [] == only(CancelTask, play.tell(completed("b")))


def test_an_element_of_a_map_keeps_its_end_which_says_when_it_began() -> None:
    play = Play(workflow(step("m", type="map", config={"items": [1, 2]}, timeout="10s")))
    play.carry_out(play.start())
    play.tell(completed("m.0", item=0))
    element = play.run.steps["m"].items
    assert element is not None
    assert (0, len(play.log)) == (element.get(0).begun, element.get(0).ended)
    assert rfc3339(BEGAN) == began_at(play.log[-1].event)


def test_what_completes_late_is_undone_next() -> None:
    undo = {"task": "UNDO"}
    play = started(workflow(step("a", compensate=undo), step("b", compensate=undo)))
    play.tell(StepStarted(run_id=RUN_ID, step_id="b", timestamp=rfc3339(EPOCH), worker_id="two", attempt_number=1))
    play.cancel(compensate=True)
    assert "cancelled" == play.step("a").status
    play.tell(completed())
    commands = play.complete("b")
    assert [("b.compensate", 1)] == dispatched(play.carry_out(commands))
    commands = play.complete("b.compensate")
    assert [("a.compensate", 1)] == dispatched(play.carry_out(commands))
    assert rfc3339(BEGAN) == play.step("a").started_at


def test_old_readers_see_a_field_that_they_do_not_know() -> None:
    body = encode(completed(delivery=2))
    assert (rfc3339(BEGAN), 2) == (decode(body).started_at, decode(body).delivery)  # type: ignore[union-attr]
    assert b'"started_at"' not in encode(replace(completed(), started_at=None))
    assert b'"v"' not in body


def test_what_says_nothing_of_a_start_has_none() -> None:
    assert began_at(None) is None
    assert began_at(replace(completed(), started_at=None)) is None
    assert began_at(started(SLOW).log[0].event) is None
    assert isinstance(started(SLOW).log[0].event, WorkflowStarted)
    assert [] == appended(started(SLOW).tell(completed()))
