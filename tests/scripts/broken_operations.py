"""What a storm might leave behind of what operators do: pauses, steps completed by hand, labels, logs. Good
histories, and those that break one promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chaos_parts.evidence import Evidence
from chaos_parts.kind_workflows import ASLEEP, MAPPED, PLANNED, RECALLED, RESCUED
from chaos_parts.ledger import ByHand, Selected, Start
from chaos_parts.said import Said
from chaos_parts.step_account import Seen
from chaos_parts.workflows import BRIEF, CHAIN, CONSENT, TIMED
from msgspec.structs import replace

from penstock.engine.times import rfc3339
from tests.scripts.broken_kinds import EVEN, MADE, broken, facts, failed
from tests.scripts.broken_promises import (
    BEGIN,
    BRIEFLY,
    CANCELLED,
    COMPLETED,
    RUN,
    event,
    evidence,
    keyed,
    started,
    step,
    timer,
)

PAUSED, UNPAUSED = event("workflow.paused", payload={}), event("workflow.unpaused", payload={})


def chain(*events: Seen, **more: Any) -> Evidence:
    return evidence(CHAIN, started(key="k"), *events, ledger=keyed(CHAIN, **more))


def good_pause() -> Evidence:
    """What runs ends, and what follows begins when the run goes on."""
    a, b = step("a"), step("b")
    return chain(a[0], PAUSED, a[1], UNPAUSED, *b, *step("c"), COMPLETED, paused={RUN}, resumed={RUN})


def good_beginning_of_what_was_ordered_before() -> Evidence:
    return chain(*step("a"), PAUSED, *step("b"), UNPAUSED, *step("c"), COMPLETED)


def step_begins_in_a_pause() -> Evidence:
    a, b = step("a"), step("b")
    return chain(a[0], PAUSED, a[1], *b, UNPAUSED, *step("c"), COMPLETED)


def attempt_begins_in_a_pause() -> Evidence:
    """Its timer fires meanwhile."""
    failure = event("step.failed", "a", {"error": "chaos: failed"})
    again = [timer("retry.a", 2, BEGIN + 60), *step("a", attempt=2)]
    return chain(step("a")[0], failure, PAUSED, *again, UNPAUSED, *step("b"), *step("c"), COMPLETED)


def pause_is_lost() -> Evidence:
    return chain(*step("a"), *step("b"), *step("c"), COMPLETED, paused={RUN})


def end_of_a_pause_is_lost() -> Evidence:
    return chain(*step("a"), PAUSED, *step("b"), resumed={RUN})


def good_pause_that_a_cancellation_ends() -> Evidence:
    """The answer of `resume` got lost, and the next one found the run cancelled."""
    return chain(*step("a"), PAUSED, CANCELLED, resumed={RUN}, cancelled={RUN})


def good_pause_that_ends_with_undoing() -> Evidence:
    off = event("workflow.cancelled", payload={"compensate": True})
    begins = event("workflow.compensating", payload={"steps": ["a"]})
    ends = event("workflow.cancelled", payload={"compensation": "completed"})
    ledger = keyed(RECALLED, resumed={RUN}, cancelled={RUN})
    undo = [*step("a", MADE), PAUSED, off, begins, *step("a.compensate"), ends]
    return evidence(RECALLED, started(key="k"), *undo, ledger=ledger)


FAILED_A = (broken("a"), failed('step "a" failed: chaos: broken', "a"))


def good_pause_that_a_failure_ends() -> Evidence:
    """What ran has failed, and somebody has the run go on: then it is not paused, and resuming it is answered 200."""
    again = [*FAILED_A, event("workflow.resumed"), *step("a", attempt=2)]
    return chain(PAUSED, *again, *step("b"), *step("c"), COMPLETED, paused={RUN}, resumed={RUN})


def pause_after_a_failure() -> Evidence:
    """What ends a pause comes after it."""
    return chain(*FAILED_A, event("workflow.resumed"), PAUSED, *step("a", attempt=2), resumed={RUN})


def failure_from_before_the_pause_ends_it() -> Evidence:
    """A repeat of an end from before the run was resumed does not count."""
    again = [event("workflow.resumed"), *step("a", attempt=2), PAUSED, FAILED_A[1]]
    return chain(*FAILED_A, *again, *step("b"), resumed={RUN})


def pause_behind_its_end() -> Evidence:
    """What ends a pause comes after it."""
    return chain(*step("a"), UNPAUSED, PAUSED, *step("b"), resumed={RUN})


def napping(wakes_s: float, pause: bool = True) -> Evidence:
    """It is its turn at BEGIN + 3, and again at BEGIN + 5."""
    held = [PAUSED, UNPAUSED] if pause else []
    nap = facts("nap", wake_at=rfc3339(BEGIN + wakes_s))
    rest = [nap, timer("sleep.nap", 1, BEGIN + 20), *step("after"), COMPLETED]
    return evidence(ASLEEP, started(key="k"), *step("a", EVEN), *held, *rest)


def good_nap_after_a_pause() -> Evidence:
    return napping(5.3)


def good_nap_that_had_begun() -> Evidence:
    return napping(3.3)


def nap_of_another_time_after_a_pause() -> Evidence:
    return napping(4.3)


def good_sleep_that_ends_in_a_pause() -> Evidence:
    nap = [facts("nap", wake_at=rfc3339(BEGIN + 3.3)), PAUSED, timer("sleep.nap", 1, BEGIN + 6), UNPAUSED]
    return evidence(ASLEEP, started(key="k"), *step("a", EVEN), *nap, *step("after"), COMPLETED)


def sleep_ends_at_once_in_a_pause() -> Evidence:
    nap = [facts("nap", wake_at=rfc3339(BEGIN + 3.3)), PAUSED, timer("sleep.nap", 1, BEGIN + 6)]
    return evidence(ASLEEP, started(key="k"), *step("a", EVEN), *nap, *step("after"), UNPAUSED, COMPLETED)


REQUESTED = event("approval.requested", "consent", {"token": "t"})
GRANTED = event("approval.granted", "consent", {})


def good_decision_in_a_pause() -> Evidence:
    held = [PAUSED, GRANTED, UNPAUSED]
    return evidence(CONSENT, started(key="k"), *step("a"), REQUESTED, *held, *step("after"), COMPLETED)


def decision_takes_effect_in_a_pause() -> Evidence:
    held = [PAUSED, GRANTED, *step("after"), UNPAUSED]
    return evidence(CONSENT, started(key="k"), *step("a"), REQUESTED, *held, COMPLETED)


def out_of_time(fires_s: float, name: str = "workflow+1") -> Evidence:
    """The run has 9 s; it began at BEGIN + 1, and was paused from BEGIN + 2 to BEGIN + 4."""
    error = "workflow timeout exceeded (9s)"
    events = [started(key="k"), PAUSED, event("workflow.unpaused", payload={}, at=BEGIN + 4)]
    fired = timer(name, 0, BEGIN + fires_s)
    return evidence(TIMED, *events, fired, event("workflow.failed", payload={"error": error}, at=BEGIN + fires_s + 1))


def good_timeout_after_a_pause() -> Evidence:
    return out_of_time(12)


def timeout_runs_on_in_a_pause() -> Evidence:
    return out_of_time(10)


def timer_from_before_the_pause_ends_it() -> Evidence:
    """Only that of the time that was left counts."""
    return out_of_time(12, "workflow")


def wrong_selection() -> Evidence:
    selected = Selected(CHAIN, {}, [RUN])
    return evidence(BRIEF, *BRIEFLY, ledger=keyed(selected=[selected]))


def selection_without_its_label() -> Evidence:
    selected = Selected(BRIEF, {"team": "red"}, [RUN])
    return evidence(BRIEF, *BRIEFLY, ledger=keyed(selected=[selected]))


def by_hand(step_id: str, output: Any) -> Seen:
    return event("step.overridden", step_id, {"output": output})


def good_step_by_hand() -> Evidence:
    """What its worker says later does not count."""
    a = step("a")
    hand = [a[0], by_hand("a", 7), a[1]]
    return chain(*hand, *step("b"), *step("c"), COMPLETED, by_hand=[ByHand(RUN, "a", 7, True)])


HELD = event("workflow.resumed", payload={"holds": "a"})


def good_failure_by_hand() -> Evidence:
    events = [broken("a"), failed('step "a" failed: chaos: broken', "a"), HELD, by_hand("a", 7)]
    return chain(*events, *step("b"), *step("c"), COMPLETED, by_hand=[ByHand(RUN, "a", 7, True)])


def held_step_begins() -> Evidence:
    """It is completed by hand next, and nobody is to carry it out."""
    events = [broken("a"), failed('step "a" failed: chaos: broken', "a"), HELD, *step("a", attempt=2), by_hand("a", 7)]
    return chain(*events, *step("b"), *step("c"), COMPLETED, by_hand=[ByHand(RUN, "a", 7, True)])


def good_map_by_hand() -> Evidence:
    hand = [facts("m", items=2), event("step.started", "m.0"), by_hand("m", [])]
    made = [started(key="k"), *step("list", [{"number": 0}, {"number": 1}])]
    wanted = [ByHand(RUN, "m", [], True)]
    return evidence(MAPPED, *made, *hand, *step("after"), COMPLETED, ledger=keyed(MAPPED, by_hand=wanted))


def good_handler_by_hand() -> Evidence:
    recovered = [by_hand("a.on_failure", MADE), *step("b"), *step("after"), COMPLETED]
    wanted = [ByHand(RUN, "a.on_failure", MADE, True)]
    return evidence(RESCUED, started(key="k"), broken("a"), *recovered, ledger=keyed(RESCUED, by_hand=wanted))


def step_by_hand_is_lost() -> Evidence:
    return chain(*step("a"), *step("b"), *step("c"), COMPLETED, by_hand=[ByHand(RUN, "a", 7, True)])


def step_by_hand_of_nobody() -> Evidence:
    return chain(by_hand("a", 7), *step("b"), *step("c"), COMPLETED, by_hand=[ByHand(RUN, "a", 8, True)])


def step_by_hand_before_its_turn() -> Evidence:
    return chain(by_hand("b", 7), *step("a"), *step("b"), *step("c"), COMPLETED, by_hand=[ByHand(RUN, "b", 7, True)])


def plan_by_hand_that_is_carried_out() -> Evidence:
    """Only its steps may be completed by hand."""
    plan = {"steps": [{"id": "x", "task": "chaos.work"}]}
    events = [*step("a"), *step("plan", plan), event("planner.expanded", "plan", plan), by_hand("plan", 7)]
    wanted = [ByHand(RUN, "plan", 7, True)]
    return evidence(
        PLANNED, started(key="k"), *events, *step("plan.x"), *step("after"), COMPLETED,
        ledger=keyed(PLANNED, by_hand=wanted),
    )  # fmt: skip


def begun_now(*events: Seen) -> Evidence:
    failure = event("step.failed", "a", {"error": "chaos: failed"})
    rest = [*step("a", attempt=2), *step("b"), *step("c"), COMPLETED]
    return chain(step("a")[0], failure, *events, *rest, begun_now=[(RUN, "a", 2)])


def good_early_attempt() -> Evidence:
    return begun_now(event("timer.fired", payload={"timer": "retry.a", "attempt": 2, "early": True}, at=BEGIN + 3.001))


def early_attempt_that_waits() -> Evidence:
    return begun_now()


def early_timer_that_nobody_has_ended() -> Evidence:
    return begun_now(timer("retry.a", 2, BEGIN + 3.001))


def labelled(start: Mapping[str, str], has: Mapping[str, str], listed: list[str]) -> Evidence:
    begins = event("workflow.started", payload={"input": {"key": "k"}, "labels": dict(has)})
    found = evidence(BRIEF, begins, *step("a"), COMPLETED)
    found.ledger.starts = {"k": Start(BRIEF, [RUN], labels=dict(start))}
    found.labelled = {("team", "red"): listed}
    return found


RED = {"team": "red"}


def good_label() -> Evidence:
    return labelled(RED, RED, [RUN])


def label_is_lost() -> Evidence:
    return labelled(RED, {}, [])


def label_does_not_find_its_run() -> Evidence:
    return labelled(RED, RED, [])


def label_finds_another_run() -> Evidence:
    return labelled({}, {}, [RUN])


def saying(lines: list[Said], chunks: list[Said] | None = None, between: tuple[Seen, ...] = ()) -> Evidence:
    """Its step says that it has logged and streamed so much."""
    done = Seen(0, 0, "step.completed", "a", 1, None, {"by": "me", "said": 2}, "worker-0")
    events = [started(key="k"), step("a")[0], *between, done, COMPLETED]
    found = evidence(BRIEF, *events, ledger=keyed(by_hand=[ByHand(RUN, "a", 7)]))
    history = found.histories[RUN]
    history.seen = [replace(one, worker=seen.worker) for one, seen in zip(history.seen, events, strict=True)]
    found.lines, found.chunks = {RUN: lines}, {RUN: BOTH if chunks is None else chunks}
    return found


BOTH = [Said("a", 1, "me", 0), Said("a", 1, "me", 1)]


def good_lines() -> Evidence:
    """One that was sent again may be there twice."""
    return saying([*BOTH, BOTH[1]])


def good_dropped_line() -> Evidence:
    return saying([BOTH[0], Said("a", 1, dropped=True)])


def good_line_of_an_attempt_that_was_given_up() -> Evidence:
    """Its step was completed by hand: what it said after that was refused."""
    return saying(BOTH[:1], between=(by_hand("a", 7),))


def line_is_lost() -> Evidence:
    return saying(BOTH[:1])


def chunk_is_lost() -> Evidence:
    return saying(BOTH, BOTH[1:])


def lines_out_of_order() -> Evidence:
    return saying(BOTH[::-1])


def line_of_another_attempt() -> Evidence:
    return saying([BOTH[0], Said("a", 2, "me", 1)])


def start_is_answered_500() -> Evidence:
    return evidence(BRIEF, *BRIEFLY, failed=["POST /runs was answered 500 internal error"])


GOOD: tuple[Callable[[], Evidence], ...] = (
    good_pause,
    good_pause_that_a_cancellation_ends,
    good_pause_that_a_failure_ends,
    good_pause_that_ends_with_undoing,
    good_beginning_of_what_was_ordered_before,
    good_nap_after_a_pause,
    good_nap_that_had_begun,
    good_sleep_that_ends_in_a_pause,
    good_decision_in_a_pause,
    good_timeout_after_a_pause,
    good_step_by_hand,
    good_failure_by_hand,
    good_map_by_hand,
    good_handler_by_hand,
    good_early_attempt,
    good_label,
    good_lines,
    good_dropped_line,
    good_line_of_an_attempt_that_was_given_up,
)

BROKEN: Mapping[Callable[[], Evidence], str] = {
    step_begins_in_a_pause: "impossible event",
    attempt_begins_in_a_pause: "impossible event",
    pause_is_lost: "pauses",
    end_of_a_pause_is_lost: "pauses",
    pause_after_a_failure: "pauses",
    failure_from_before_the_pause_ends_it: "pauses",
    pause_behind_its_end: "pauses",
    nap_of_another_time_after_a_pause: "sleeps",
    sleep_ends_at_once_in_a_pause: "impossible event",
    decision_takes_effect_in_a_pause: "impossible event",
    timeout_runs_on_in_a_pause: "timers in time",
    timer_from_before_the_pause_ends_it: "impossible event",
    wrong_selection: "selections",
    selection_without_its_label: "selections",
    held_step_begins: "impossible event",
    step_by_hand_is_lost: "by hand",
    step_by_hand_of_nobody: "by hand",
    step_by_hand_before_its_turn: "by hand",
    plan_by_hand_that_is_carried_out: "by hand",
    early_attempt_that_waits: "begun now",
    early_timer_that_nobody_has_ended: "timers in time",
    label_is_lost: "labels",
    label_does_not_find_its_run: "labels",
    label_finds_another_run: "labels",
    line_is_lost: "said",
    start_is_answered_500: "internal error",
    chunk_is_lost: "said",
    lines_out_of_order: "said",
    line_of_another_attempt: "said",
}
