"""Reasons of steps that no worker carries out now: they wait for a time, an event, a person or a child; or for their
next attempt."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
from msgspec import Raw

from penstock.engine.definition.identifiers import quoted
from penstock.engine.run.state import Run
from penstock.engine.times import rfc3339
from penstock.engine.waiting.awaited import WaitingExecution
from penstock.engine.waiting.facts import LiveFacts
from penstock.engine.waiting.reasons import Reason, WaitingReason


def named(one: WaitingExecution) -> str:
    """`step "a"`; of elements that wait for the same `step "m.0" (and 7 other elements of its map)`."""
    others = "" if not one.others else f" (and {one.others} other element{'s' if one.others > 1 else ''} of its map)"
    return f"step {quoted(one.id)}{others}"


def begun_at(run: Run, one: WaitingExecution) -> str:
    """When the execution began, or the run where that is not known."""
    return one.step.started_at or run.started_at or run.created_at


def of_retry(run: Run, one: WaitingExecution, facts: LiveFacts) -> Iterator[WaitingReason]:
    due = rfc3339(one.step.due or facts.now)
    now = "" if run.element(one.id) else f": `penstock run step retry {run.run_id} {one.id}` begins it now"
    failed = "" if one.step.error is None else f" after: {_one_line(one.step.error)}"
    yield WaitingReason(
        step_id=one.id,
        reason=Reason.RETRY_DELAY,
        since=begun_at(run, one) if facts.changed_at is None else rfc3339(facts.changed_at),
        text=f"{named(one)} begins attempt {one.step.attempts} at {due}{failed}{now}",
        until=due,
        details={"attempt": one.step.attempts},
    )


def of_sleep(run: Run, one: WaitingExecution, facts: LiveFacts) -> Iterator[WaitingReason]:
    wake_at = rfc3339(one.step.wake_at or facts.now)
    yield WaitingReason(
        step_id=one.id,
        reason=Reason.SLEEPING,
        since=begun_at(run, one),
        text=f"{named(one)} sleeps until {wake_at}, as its definition says",
        until=wake_at,
        details={},
    )


def of_event(run: Run, one: WaitingExecution, facts: LiveFacts) -> Iterator[WaitingReason]:
    wait = one.step.waits_for
    assert wait is not None
    until = None if wait.until is None else rfc3339(wait.until)
    known_by = wait.correlate
    whose = "" if known_by is None else f" whose {known_by.field} is {_value(known_by.value)}"
    bound = "" if until is None else f", until {until}"
    yield WaitingReason(
        step_id=one.id,
        reason=Reason.WAITING_EVENT,
        since=begun_at(run, one),
        text=f"{named(one)} waits for an event {quoted(wait.event)}{whose}{bound}: `penstock event send {wait.event}` "
        "sends one",
        until=until,
        details={"event": wait.event},
    )


def of_word(run: Run, one: WaitingExecution, facts: LiveFacts) -> Iterator[WaitingReason]:
    """An approval. Its token is nowhere in the sentence."""
    until = None if one.step.due is None else rfc3339(one.step.due)
    bound = "" if until is None else f" until {until}"
    yield WaitingReason(
        step_id=one.id,
        reason=Reason.WAITING_APPROVAL,
        since=begun_at(run, one),
        text=f"{named(one)} waits for a person's decision{bound}: "
        f"`penstock approval approve {run.run_id} {one.id}`, or `reject`",
        until=until,
        details={},
    )


def of_child(run: Run, one: WaitingExecution, facts: LiveFacts) -> Iterator[WaitingReason]:
    child = one.child_run_id or ""
    yield WaitingReason(
        step_id=one.id,
        reason=Reason.WAITING_CHILD,
        since=begun_at(run, one),
        text=f"{named(one)} waits for the end of run {child}, its child: `penstock run explain {child}` says why that "
        "waits",
        until=None if one.step.due is None else rfc3339(one.step.due),
        details={"child_run_id": child},
    )


def _value(value: Raw) -> str:
    """A JSON text or number, with quotes around a text only."""
    found = orjson.loads(bytes(value))
    return _one_line(found) if isinstance(found, str) else bytes(value).decode()


def _one_line(text: str) -> str:
    """The first line of a text that others have written, quoted: shortened, without control characters."""
    return quoted(text.strip().partition("\n")[0])
