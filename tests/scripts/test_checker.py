"""The storm's checker can fail: each promise is broken once in a small history, and that very rule says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import orjson
import pytest
from chaos_parts.account import Account
from chaos_parts.api import may_fail
from chaos_parts.backups import Backup, promises
from chaos_parts.backups import before as executions_before
from chaos_parts.checker import RULES, check, check_open
from chaos_parts.deadlines import early_timers
from chaos_parts.evidence import Evidence, History, Violation, shown_account, shown_state
from chaos_parts.kind_workflows import UNDONE
from chaos_parts.ledger import Ledger, Start, Verdict
from chaos_parts.limited_workflows import NEWEST
from chaos_parts.step_account import Seen, wire_events
from chaos_parts.workflows import AGENT, BRIEF, CHAIN, CONSENT, DIAMOND, DOOMED, HOOK, STICKY, TIMED

from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.execution.retry import delay_s
from penstock.engine.run.state import to_snapshot
from penstock.engine.validation import parse
from tests.properties.recorded import histories, read, states
from tests.scripts import (
    broken_importing,
    broken_kinds,
    broken_limits,
    broken_operations,
    broken_pruning,
    broken_reruns,
    broken_runs,
    broken_undoing,
    broken_waits,
)
from tests.scripts.broken_promises import (
    BEGIN,
    BRIEFLY,
    BROKEN,
    CANCELLED,
    COMPLETED,
    CONSENTED,
    OTHER,
    RUN,
    WORKFLOWS,
    doomed,
    event,
    evidence,
    executed,
    failure,
    keyed,
    sequence,
    started,
    step,
    task_left,
    timer,
)

KINDS = (
    broken_importing,
    broken_kinds,
    broken_limits,
    broken_operations,
    broken_pruning,
    broken_reruns,
    broken_runs,
    broken_undoing,
    broken_waits,
)
ALL_BROKEN = {name: rule for module in KINDS for name, rule in module.BROKEN.items()} | dict(BROKEN)


@pytest.mark.parametrize(("broken", "rule"), ALL_BROKEN.items(), ids=[broken.__name__ for broken in ALL_BROKEN])
def test_a_broken_promise_is_found_by_its_rule(broken: Callable[[], Evidence], rule: str) -> None:
    assert rule in {violation.rule for violation in check(broken())}


def test_every_rule_has_a_history_that_breaks_it() -> None:
    silent = [rule.__name__ for rule in RULES if not any(found for broken in ALL_BROKEN for found in rule(broken()))]
    assert [] == silent


GOOD: Mapping[str, Evidence] = {
    "a brief run": evidence(BRIEF, *BRIEFLY, executions=[executed("a", {"key": "k"})]),
    "a doomed run": evidence(DOOMED, *doomed(), dead_letters=frozenset({(RUN, "doom")})),
    "a decision": evidence(
        CONSENT,
        *CONSENTED,
        COMPLETED,
        ledger=keyed(verdicts={RUN: [Verdict("approve", 200, False), Verdict("reject", 409, False)]}),
    ),
    "a decision whose answer got lost": evidence(
        CONSENT, *CONSENTED, COMPLETED, ledger=keyed(verdicts={RUN: [Verdict("approve", 409, True)]})
    ),
    "a cancellation before the end": evidence(
        BRIEF, started(key="k"), CANCELLED, *step("a"), COMPLETED, ledger=keyed(cancelled={RUN})
    ),
    "a start that was due while the run was paused, and taken back then": evidence(
        BRIEF,
        event("workflow.scheduled", payload={"input": {"key": "k"}}),
        event("workflow.paused"),
        started(key="k"),
        CANCELLED,
        ledger=keyed(unscheduled={RUN}),
    ),
    "a webhook": evidence(
        BRIEF,
        event(
            "workflow.started",
            payload={"input": {"delivery": "d"}, "trigger": {"name": HOOK, "kind": "webhook", "at": ""}},
        ),
        *step("a"),
        COMPLETED,
        ledger=Ledger(deliveries={"d": True}),
    ),
}


@pytest.mark.parametrize("path", histories(), ids=lambda path: path.stem)
def test_the_account_of_a_recorded_history_is_after_each_event_what_it_folds_to(path: Path) -> None:
    recorded = read(path)
    found = Account(compile_workflow(parse(recorded.definition), "golden"))
    for one, run in zip(recorded.records, states(recorded), strict=True):
        for seen in wire_events(one.seq, one.at, bytes(one.event)):
            found.take(seen)
        folded = None if run is None else shown_state(orjson.loads(to_snapshot(run)))
        assert folded is None or [] == folded.differences(shown_account(found))


@pytest.mark.parametrize("found", GOOD.values(), ids=GOOD)
def test_a_kept_promise_is_no_violation(found: Evidence) -> None:
    assert [] == check(found)


@pytest.mark.parametrize("good", [good for module in KINDS for good in module.GOOD], ids=lambda good: good.__name__)
def test_a_history_that_keeps_the_promises_of_its_steps_is_no_violation(good: Callable[[], Evidence]) -> None:
    assert [] == check(good())


def account(workflow: str, *events: Seen) -> Account:
    return History(WORKFLOWS[workflow], sequence(*events)).account


def test_the_first_of_two_results_counts() -> None:
    found = account(BRIEF, started(), *step("a", "first"), event("step.completed", "a", "second"), COMPLETED)
    assert ("first", 1) == (found.steps["a"].output, found.late)


def test_a_result_of_an_attempt_that_failed_before_is_late() -> None:
    again = (timer("retry.a", 2, 0), *step("a", "again", 2))
    found = account(
        BRIEF,
        started(),
        event("step.started", "a"),
        failure(1),
        event("step.completed", "a", "late"),
        *again,
        COMPLETED,
    )
    assert ("completed", "again", 2) == (found.status, found.steps["a"].output, found.steps["a"].attempt)


def test_a_resumed_run_goes_on_with_the_next_attempt() -> None:
    found = account(
        DOOMED, *doomed(), event("workflow.resumed"), *step("doom", 1, attempt=2), *step("after"), COMPLETED
    )
    assert ("completed", 2, 1) == (found.status, found.steps["doom"].attempt, found.resumes)


def test_a_loop_is_given_what_it_handed_on() -> None:
    again = event("step.continue", "loop", "handed on")
    last = event("step.completed", "loop", "done", 1, 1)
    found = account(
        AGENT,
        started(),
        event("step.started", "loop"),
        again,
        timer("retry.loop~1", 1, 0),
        last,
        *step("after"),
        COMPLETED,
    )
    assert ("completed", {1: "handed on"}) == (found.status, found.steps["loop"].inputs)


def test_a_step_whose_condition_holds_is_skipped_and_the_rest_goes_on() -> None:
    found = account(
        DIAMOND, started(), *step("a", {"even": True}), event("step.skipped", "c"), *step("b"), *step("d"), COMPLETED
    )
    assert ("completed", "skipped") == (found.status, found.steps["c"].status)


def test_what_was_open_is_cancelled_with_its_run() -> None:
    found = account(CHAIN, started(), *step("a"), CANCELLED)
    assert ["completed", "cancelled", "cancelled"] == [one.status for one in found.steps.values()]


def test_timers_are_in_time_from_their_due_moment_on() -> None:
    failed = event("step.failed", "slow", {"error": "chaos: failed"})
    due = BEGIN + 3 + delay_s(WORKFLOWS[TIMED].steps["slow"].retry, RUN, "slow", 1)
    history = (started(), event("step.started", "slow"), failed)

    def early(at: float) -> list[str]:
        return list(early_timers(RUN, WORKFLOWS[TIMED], sequence(*history, timer("retry.slow", 2, at))))

    assert [] == early(due)
    assert 1 == len(early(due - 0.05))


def test_after_a_storm_that_does_not_end_only_the_open_runs_are_reported() -> None:
    still_read = evidence(CHAIN, started(key="k"), *step("a"), snapshots={RUN: b"another"})
    assert "snapshot is the fold" in {found.rule for found in check(still_read)}
    calm, open_run = check_open(still_read, 180)
    assert ("calm", "every run ends", RUN) == (calm.rule, open_run.rule, open_run.run_id)
    assert "180 s after the last fault not everything had ended, among it 1 runs" in calm.what


def test_a_timer_that_nobody_set_is_reported() -> None:
    assert 1 == len(list(early_timers(RUN, WORKFLOWS[BRIEF], sequence(started(), timer("retry.a", 2, BEGIN + 90)))))


def test_a_task_is_lost_by_the_worker_of_a_bound_run_only_after_it_has_begun() -> None:
    lost = timer("lost.a", 1, BEGIN + 90)
    assert [] == list(early_timers(RUN, WORKFLOWS[STICKY], sequence(started(), event("step.started", "a"), lost)))
    assert 1 == len(list(early_timers(RUN, WORKFLOWS[STICKY], sequence(started(), lost))))
    assert 1 == len(list(early_timers(RUN, WORKFLOWS[CHAIN], sequence(started(), event("step.started", "a"), lost))))


def test_a_task_that_was_out_is_handed_out_again_after_a_restore_only() -> None:
    history = sequence(started(), event("step.started", "a"), timer("restored.a", 1, BEGIN + 90))
    assert [] == list(early_timers(RUN, WORKFLOWS[BRIEF], history, restored=True))
    assert 1 == len(list(early_timers(RUN, WORKFLOWS[BRIEF], history)))


def test_a_task_that_nobody_has_after_a_restore_is_not_waited_for_before_its_run_undoes_its_steps() -> None:
    """`a` has completed and `slow` runs when `doom` fails."""
    begins = [event("step.started", "slow"), *step("b"), event("step.started", "doom")]
    doom = event("step.failed", "doom", {"error": "chaos: doomed", "failure_type": "non_retriable"})
    events = [started(), *step("a"), *step("list", []), event("step.started", "m", {"items": 0}), *begins, doom]
    assert "b.compensate" not in account(UNDONE, *events).steps
    assert "b.compensate" in account(UNDONE, *events, timer("restored.slow", 1, 0)).steps


def test_a_backup_has_what_was_acknowledged_before_it_and_may_have_what_was_asked_for_later() -> None:
    before = Ledger(starts={"k": Start(BRIEF, [RUN])}, cancelled={RUN})
    after = Ledger(starts={"k": Start(BRIEF, [RUN, RUN]), "later": Start(BRIEF, [OTHER])}, cancelled={RUN, OTHER})
    found = promises(Backup(Path(), BEGIN, before, 1), after)
    assert {RUN: "keyed"} == found.acknowledged
    assert ({"k", "later"}, {RUN}) == (set(found.starts), found.cancelled)


def test_of_the_executions_those_count_that_had_begun_before_the_backup() -> None:
    first, second = executed("a", 7, at=BEGIN - 1), executed("a", 7, at=BEGIN + 1)
    assert [first] == executions_before([first, second], Backup(Path(), BEGIN, Ledger(), 1))


@pytest.mark.parametrize(
    ("method", "target", "text", "allowed"),
    [
        ("POST", f"/runs/{RUN}/cancel", b"the broker is away", True),
        ("POST", f"/runs/{RUN}/steps/m.3/skip", b"the broker is away", True),
        ("POST", f"/runs/{RUN}/signal/go", b"internal error\n", False),
        ("POST", "/runs", b"the broker is away", False),
        ("POST", "/runs/cancel", b"the broker is away", False),
        ("GET", f"/runs/{RUN}", b"the broker is away", False),
    ],
)
def test_only_what_is_written_into_a_history_may_be_answered_500(
    method: str, target: str, text: bytes, allowed: bool
) -> None:
    assert allowed is may_fail(method, target, text)


def test_a_violation_names_its_run() -> None:
    assert [Violation("nothing left", f"a task is still queued: task.chaos.work.{RUN}", RUN)] == check(task_left())


@pytest.mark.parametrize("first", ["taken over", "granted"])
def test_a_rerun_takes_over_before_or_after_it_has_its_slots(first: str) -> None:
    begins = event("workflow.started", payload={"input": {}, "rerun_from": "slow", "takes": {"done": ["a"]}})
    comes = {
        "taken over": broken_reruns.taken("a", 7),
        "granted": broken_limits.granted(broken_limits.NEWEST_ONE, f"{RUN}.0"),
    }
    account = Account(WORKFLOWS[NEWEST], RUN)
    for seen in sequence(begins, comes.pop(first), *comes.values(), *step("slow"), COMPLETED):
        account.take(seen)
    assert ("completed", [], 0) == (account.status, account.problems, account.late)
