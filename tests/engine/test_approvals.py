"""Approvals: asked once, decided once, by a token that the state knows only the hash of."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import pytest

from penstock.engine.run.commands import (
    AppendEvent,
    Command,
    DeadLetterTask,
    DispatchTask,
    OpenApproval,
    RequestApproval,
    SetTimer,
    WithdrawTask,
    WithdrawTimer,
)
from penstock.engine.run.event_payloads import ApprovalRequest
from penstock.engine.run.events import ApprovalExpired, WorkflowFailed
from penstock.engine.run.kinds.approval import has_expired, token_hash
from penstock.engine.run.state import RunStatus, from_snapshot, to_snapshot
from penstock.engine.run.still_due import still_due
from penstock.engine.run.timers import live_timers
from tests.engine.build import (
    EPOCH,
    Play,
    appended,
    approval,
    dispatched,
    inputs,
    only,
    skip_if,
    started,
    step,
    value,
    workflow,
)

DAY_S = 86_400.0
ASKED = workflow(approval("a", config={"timeout": "1h"}), step("b", "a"))
DECISIONS: list[Callable[[Play, str], list[Command]]] = [Play.grant, Play.reject, Play.expire]


def asked(token: str = "secret") -> Play:
    """A run that waits for a person to decide step `a`, with an hour to do so."""
    play = started(ASKED)
    play.ask("a", token)
    return play


def test_an_approval_is_asked_for_and_no_task_of_it_is_ever_queued() -> None:
    config = {"timeout": "1h", "subject": "asks.ops", "description": "Sure?", "metadata": {"k": "v"}}
    play = Play(workflow(approval("a", config=config)))
    assert play.start() == [RequestApproval("a", 1, EPOCH + 3600, "asks.ops", "Sure?", {"k": "v"})]
    assert (play.step("a").status, play.step("a").attempts, live_timers(play.run)) == ("queued", 1, [])


def test_an_approval_that_says_nothing_waits_a_day() -> None:
    play = Play(workflow(approval("a")))
    assert play.start() == [RequestApproval("a", 1, EPOCH + DAY_S)]
    assert only(SetTimer, play.ask("a")) == [SetTimer("approval.a", EPOCH + DAY_S, "a", 1)]


def test_a_request_in_the_log_opens_the_approval_and_its_time_counts_from_there() -> None:
    play = started(ASKED)
    commands = play.ask("a", "secret", after=5)
    due = EPOCH + 3605
    request = ApprovalRequest(token="secret", expires_at="2030-01-01T00:00:00Z")
    assert commands == [SetTimer("approval.a", due, "a", 1), OpenApproval("a", 1, request)]
    a = play.step("a")
    assert (a.status, a.due, a.started_at) == ("running", due, "1970-01-12T13:46:45.000000Z")
    assert live_timers(play.run) == [SetTimer("approval.a", due, "a", 1)]


def test_the_state_knows_the_hash_of_the_token_and_never_the_token() -> None:
    play = asked("c0ffee")
    assert play.step("a").token == sha256(b"c0ffee").hexdigest() == token_hash("c0ffee")
    assert b"c0ffee" not in to_snapshot(play.run)
    play.grant("a")
    assert b"c0ffee" not in to_snapshot(play.run)
    assert from_snapshot(to_snapshot(play.run)) == play.run


def test_of_two_requests_the_first_ones_token_counts() -> None:
    play = asked("first")
    before = play.run
    assert play.ask("a", "second") == []
    assert play.run is before
    assert play.step("a").token == token_hash("first")


def test_a_granted_approval_is_done_and_its_output_is_the_decision() -> None:
    play = asked()
    commands = play.grant("a", comment="fine", by="me")
    assert commands[0] == WithdrawTimer("approval.a", EPOCH + 3600)
    assert inputs(commands) == {"b": {"comment": "fine", "approved_by": "me"}}
    a = play.step("a")
    assert (a.status, a.due, a.error) == ("completed", None, None)
    assert a.finished_at is not None


def test_a_decision_without_a_comment_is_an_empty_object() -> None:
    play = asked()
    play.grant("a")
    assert value(play.step("a").output) == {}


def test_a_run_may_end_with_an_approval() -> None:
    play = started(workflow(approval("a")))
    play.ask("a")
    assert appended(play.grant("a", by="me")) == ["workflow.completed"]
    play.settle()
    assert play.run.status is RunStatus.COMPLETED


@pytest.mark.parametrize(
    ("comment", "by", "error"),
    [
        (None, None, "rejected"),
        ("no", None, "rejected: no"),
        (None, "me", "rejected by me"),
        ("no", "me", "rejected by me: no"),
    ],
)
def test_a_rejected_approval_fails_its_run_with_what_the_person_said(
    comment: str | None, by: str | None, error: str
) -> None:
    play = asked()
    timer, dead_letter, end = play.reject("a", comment=comment, by=by)
    assert timer == WithdrawTimer("approval.a", EPOCH + 3600)
    assert isinstance(dead_letter, DeadLetterTask)
    assert (dead_letter.step_id, dead_letter.task, dead_letter.attempt, dead_letter.error) == (
        "a",
        "approval",
        1,
        error,
    )
    assert isinstance(end, AppendEvent)
    assert isinstance(end.event, WorkflowFailed)
    assert (end.event.payload.error, end.event.payload.step_id) == (f'step "a" failed: {error}', "a")
    play.settle()
    assert (play.run.status, play.statuses()) == (RunStatus.FAILED, {"a": "failed", "b": "cancelled"})


def test_no_is_no_whatever_is_tried_again_by_default() -> None:
    play = started(workflow(approval("a"), default_retry={"max_attempts": 3}))
    play.ask("a")
    assert appended(play.reject("a")) == ["workflow.failed"]
    assert play.step("a").attempts == 1


def test_an_approval_that_nobody_decides_expires_by_its_timer() -> None:
    play = asked()
    [command] = play.fire("approval.a", "a", 1, after=3600)
    assert isinstance(command, AppendEvent)
    assert isinstance(command.event, ApprovalExpired)
    assert (command.event.step_id, command.event.attempt_number) == ("a", 1)
    assert (play.step("a").status, live_timers(play.run)) == ("running", [])
    commands = play.settle()
    assert [type(command) for command in commands[:2]] == [DeadLetterTask, AppendEvent]
    assert play.step("a").error == "approval expired after 1h"
    assert has_expired(play.step("a"))
    assert play.run.status is RunStatus.FAILED


def test_only_what_expired_has_expired() -> None:
    play = asked()
    assert not has_expired(play.step("a"))
    play.reject("a", comment="approval expired after 1h")
    assert not has_expired(play.step("a"))


@pytest.mark.parametrize("decide", [Play.grant, Play.reject])
def test_a_decision_that_gets_into_the_log_before_the_expiry_counts(
    decide: Callable[[Play, str], list[Command]],
) -> None:
    play = asked()
    play.fire("approval.a", "a", 1, after=3600)
    assert decide(play, "a") != []
    status = play.step("a").status
    assert status in ("completed", "failed")
    play.settle()
    assert (play.step("a").status, has_expired(play.step("a"))) == (status, False)


@pytest.mark.parametrize("second", DECISIONS)
@pytest.mark.parametrize("first", DECISIONS)
def test_only_the_first_decision_counts(
    first: Callable[[Play, str], list[Command]], second: Callable[[Play, str], list[Command]]
) -> None:
    play = asked()
    assert first(play, "a") != []
    before = play.run
    assert second(play, "a") == []
    assert play.run is before
    play.settle()
    before = play.run
    assert second(play, "a") == []
    assert play.run is before


@pytest.mark.parametrize("decide", DECISIONS)
def test_nobody_decides_what_was_not_asked(decide: Callable[[Play, str, int | None], list[Command]]) -> None:
    play = started(workflow(approval("a"), approval("b", "a")))
    before = play.run
    assert [decide(play, step_id, None) for step_id in ("a", "b", "nowhere")] == [[]] * 3
    assert play.run is before


@pytest.mark.parametrize("decide", DECISIONS)
@pytest.mark.parametrize("attempt", [0, 2, -1])
def test_a_decision_of_another_attempt_does_not_count(
    decide: Callable[[Play, str, int], list[Command]], attempt: int
) -> None:
    play = asked()
    before = play.run
    assert decide(play, "a", attempt) == []
    assert play.run is before


@pytest.mark.parametrize("decide", DECISIONS)
def test_a_decision_without_an_attempt_means_the_one_that_was_asked(
    decide: Callable[[Play, str, None], list[Command]],
) -> None:
    play = started(ASKED)
    play.ask("a", "secret", None)
    assert decide(play, "a", None) != []


def test_a_request_of_another_attempt_opens_nothing() -> None:
    play = started(ASKED)
    before = play.run
    assert [play.ask("a", "x", 2), play.ask("b"), play.ask("nowhere")] == [[]] * 3
    assert play.run is before


def test_no_worker_answers_for_a_person() -> None:
    play = started(ASKED)
    for _ in ("queued", "asked"):
        before = play.run
        for attempt in (1, None):
            assert [
                play.begin("a", attempt),
                play.complete("a", 1, attempt),
                play.fail("a", attempt),
                play.go_on("a", 1, attempt),
            ] == [[]] * 4
        assert play.run is before
        play.ask("a")
    assert play.step("a").status == "running"


def test_no_person_answers_for_a_worker() -> None:
    play = started(workflow(step("a")))
    play.begin("a")
    before = play.run
    assert [play.ask("a"), play.grant("a"), play.reject("a"), play.expire("a")] == [[]] * 4
    assert play.run is before


def test_no_decision_counts_after_a_cancel_which_withdraws_the_timer_and_no_task() -> None:
    play = asked()
    assert play.cancel() == [WithdrawTimer("approval.a", EPOCH + 3600)]
    before = play.run
    assert [play.grant("a"), play.reject("a"), play.expire("a"), play.ask("a"), play.fire("approval.a", "a", 1)] == [
        []
    ] * 5
    assert play.run is before
    assert play.statuses() == {"a": "cancelled", "b": "cancelled"}


def test_cancelling_what_was_not_asked_yet_withdraws_nothing() -> None:
    play = started(ASKED)
    assert play.cancel() == []
    assert play.ask("a") == []


def failing() -> Play:
    """Step `b` has failed the run, whose end is not in the log yet; `a` waits for a decision, `c` for its request."""
    play = started(workflow(approval("a"), step("b"), approval("c")))
    play.ask("a")
    play.fail("b")
    return play


def test_nothing_is_asked_or_decided_in_a_failing_run() -> None:
    play = failing()
    before = play.run
    assert [play.grant("a"), play.reject("a"), play.expire("a"), play.ask("c"), play.fire("approval.a", "a", 1)] == [
        []
    ] * 5
    assert play.run is before
    assert only(WithdrawTask, play.settle()) == []
    assert play.statuses() == {"a": "cancelled", "b": "failed", "c": "cancelled"}


def test_the_workflow_timeout_counts_while_a_person_thinks() -> None:
    play = started(workflow(approval("a"), timeout="1m"))
    play.ask("a")
    assert appended(play.fire("workflow", after=60)) == ["workflow.failed"]
    assert WithdrawTimer("approval.a", EPOCH + DAY_S) in play.settle()
    assert play.statuses() == {"a": "cancelled"}


@pytest.mark.parametrize(
    ("timer", "attempt"), [("approval.a", 2), ("approval.b", 1), ("timeout.a", 1), ("retry.a", 1), ("approval.a~1", 1)]
)
def test_no_other_timer_lets_an_approval_expire(timer: str, attempt: int) -> None:
    play = asked()
    before = play.run
    assert play.fire(timer, "a", attempt, after=3600) == []
    assert play.run is before


def test_an_approval_expires_once() -> None:
    play = asked()
    play.fire("approval.a", "a", 1, after=3600)
    before = play.run
    assert play.fire("approval.a", "a", 1) == []
    assert play.run is before


def test_a_skipped_approval_is_never_asked() -> None:
    play = started(workflow(step("a"), approval("b", "a", skip_if=skip_if("a", "x", "==", 1)), step("c", "b")))
    commands = [*play.complete("a", {"x": 1}), *play.settle()]
    assert only(RequestApproval, commands) == []
    assert (play.step("b").status, inputs(commands)) == ("skipped", {"c": None})


def test_approvals_and_tasks_wait_side_by_side() -> None:
    play = Play(workflow(approval("a"), step("b"), step("c", "a", "b")))
    commands = play.start({"n": 1})
    assert [type(command) for command in commands] == [RequestApproval, DispatchTask]
    play.complete("b", "b's")
    play.ask("a")
    assert inputs(play.grant("a", by="me")) == {"c": {"a": {"approved_by": "me"}, "b": "b's"}}


def due(play: Play, commands: list[Command]) -> list[type]:
    return [type(command) for command in commands if still_due(play.run, command)]


def test_a_request_is_due_until_it_is_in_the_log() -> None:
    play = Play(ASKED)
    commands = play.start()
    assert due(play, commands) == [RequestApproval]
    commands += play.ask("a")
    assert due(play, commands) == [SetTimer, OpenApproval]
    commands += play.grant("a")
    assert due(play, commands) == [WithdrawTimer, DispatchTask]


def test_a_request_is_not_due_in_a_run_that_fails_or_has_ended() -> None:
    play = Play(workflow(approval("a"), step("b")))
    commands = only(RequestApproval, play.start())
    assert due(play, list(commands)) == [RequestApproval]
    play.fail("b")
    assert due(play, list(commands)) == []
    play.settle()
    assert due(play, list(commands)) == []


def test_an_open_approval_is_due_until_it_is_decided_or_expires() -> None:
    play = started(ASKED)
    opened = only(OpenApproval, play.ask("a"))
    assert due(play, list(opened)) == [OpenApproval]
    play.fire("approval.a", "a", 1, after=3600)
    assert due(play, list(opened)) == [OpenApproval]
    play.settle()
    assert due(play, list(opened)) == []


def test_the_expiry_is_due_once_its_timer_has_fired() -> None:
    play = asked()
    commands = play.fire("approval.a", "a", 1, after=3600)
    assert due(play, commands) == [AppendEvent]
    assert dispatched(play.settle()) == []
    assert due(play, commands) == []
