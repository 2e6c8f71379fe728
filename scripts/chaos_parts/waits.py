"""What must hold of steps that wait: for a time, for an event, or for their turn by a condition."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engine.run.kinds.wait_for_event import EventWaitPlan
from penstock.engine.times import instant

from .account import Account
from .evidence import Evidence, History, Sent, Violation
from .given import MATCHES, WHEN, items_of, sleeps_s
from .step_account import Begun

NEAR_S = 0.00001  # texts of times have microseconds


def conditions_decide(evidence: Evidence) -> Iterator[Violation]:
    """A step is skipped if its condition is false, and begins if it is true. What is taken over was decided in the run
    before: outputs that were given since do not change it."""
    for run_id, history in evidence.histories.items():
        for (workflow, step_id), condition in WHEN.items():
            step = history.account.steps.get(step_id) if workflow == history.workflow.name else None
            if step is None or step.only_taken or not (step.status == "skipped" or step.ever_began):
                continue
            if condition(history.account) is (step.status == "skipped"):
                yield Violation("conditions", f"step {step_id} is {step.status}, against its condition", run_id)


def sleeps_last_as_long_as_said(evidence: Evidence) -> Iterator[Violation]:
    for run_id, history in evidence.histories.items():
        for begun in history.account.begun:
            lasts_s = sleeps_s(history.account, begun.step_id)
            if lasts_s is None:
                continue
            late_s = _nearest(begun, instant(begun.facts["wake_at"]) - lasts_s)
            if abs(late_s) > NEAR_S:
                yield Violation("sleeps", f"step {begun.step_id} wakes {late_s:+.6f} s from when it should", run_id)


def maps_have_all_elements(evidence: Evidence) -> Iterator[Violation]:
    """A map has an element for each of its array, unless it is taken over, and the API lists them as the history means
    them."""
    for run_id, history in evidence.histories.items():
        for step_id, step in history.account.steps.items():
            if step.elements is None:
                continue
            if not step.only_taken:
                wanted = len(items_of(history.account, history.account.plans[step_id]))
                if len(step.elements) != wanted:
                    yield Violation("maps", f"{step_id} has {len(step.elements)} elements of {wanted}", run_id)
            listed = [] if evidence.items is None else evidence.items.get((run_id, step_id), [])
            for problem in () if evidence.items is None else history.unlisted(step_id, listed):
                yield Violation("maps", problem, run_id)


def waits_end_by_the_first_event(evidence: Evidence) -> Iterator[Violation]:
    """A wait begins when its last dependency has ended, or by its lookback before that. The first event counts that was
    stored from then to its deadline, and has completed no step before it; an event wins over the deadline."""
    for run_id, history in evidence.histories.items():
        for begun in history.account.begun:
            found = history.account.find(begun.step_id)
            if found is not None and isinstance(plan := found[1].config, EventWaitPlan):
                for problem in [*_bounds(begun, plan), *_end(evidence, history, begun)]:
                    yield Violation("waits", f"step {begun.step_id}: {problem}", run_id)


def _bounds(begun: Begun, plan: EventWaitPlan) -> Iterator[str]:
    early_s = begun.first.at - plan.lookback_s - instant(begun.facts["since"])
    if abs(early_s) > NEAR_S:
        yield f"its wait begins {early_s:.6f} s before it should"
    until = begun.facts.get("until")
    if (until is None) is not (plan.timeout_s is None):
        yield f"its deadline is {until}"
    elif until is not None and abs(late_s := _nearest(begun, instant(until) - (plan.timeout_s or 0))) > NEAR_S:
        yield f"its wait ends {late_s:+.6f} s from when it should"


def _nearest(begun: Begun, at: float) -> float:
    """How long after one of its turns that is, in s."""
    return min((at - turn.at for turn in begun.turns), key=abs)


def _end(evidence: Evidence, history: History, begun: Begun) -> Iterator[str]:
    if begun.end is None:  # its run ended first
        return
    first = next(_counting(evidence, history, begun), None)
    if begun.end.type == "event.received":
        found = begun.end.payload
        if first is None or found["seq"] != first.seq:
            yield f"event {found['seq']} has ended it, and not {first.seq if first else None}"
        elif found.get("body") != first.body:
            yield f"event {first.seq} has another body in the history"
    elif first is not None:
        yield f"its deadline has ended it, and event {first.seq} was stored {first.at}, in time"


def _counting(evidence: Evidence, history: History, begun: Begun) -> Iterator[Sent]:
    """The events that the step may be completed by, in their order."""
    since, until = instant(begun.facts["since"]), begun.facts.get("until")
    matches = MATCHES[history.workflow.name, begun.step_id]
    passed = _passed(history.account, begun.step_id)
    for sent in evidence.events:
        in_time = since <= sent.at and (until is None or sent.at <= instant(until))
        counts = in_time and sent.name == begun.facts["event"] and sent.seq not in passed
        if counts and matches(history.account, sent.body):
            yield sent


def _passed(account: Account, step_id: str) -> set[int | None]:
    """The events that have completed a step on which this one depends, directly or not."""
    found, ahead = set[int | None](), list(account.plans[step_id].depends_on)
    while ahead:
        found.add(account.steps[one := ahead.pop()].received)
        ahead += account.plans[one].depends_on
    return found
