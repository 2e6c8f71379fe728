"""Reasons of runs and executions that wait for a slot of a limit, or for a token of a rate."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engine.definition.identifiers import quoted
from penstock.engine.limits.names import LimitKind
from penstock.engine.run.slots.named import allowed_text
from penstock.engine.run.state import Run, RunStatus
from penstock.engine.times import rfc3339
from penstock.engine.waiting.awaited import WaitingExecution
from penstock.engine.waiting.facts import LiveFacts, SlotWait
from penstock.engine.waiting.of_time import begun_at, named
from penstock.engine.waiting.reasons import Detail, Reason, WaitingReason

WHAT = {LimitKind.RUNS: "run", LimitKind.EXECUTIONS: "execution"}


def of_run(run: Run, facts: LiveFacts) -> Iterator[WaitingReason]:
    """Of a run that has not begun, or not gone on, because of a limit."""
    wait = facts.limits.get("")
    if wait is not None and run.status is RunStatus.PENDING and run.pause is None:
        yield _reason(wait, "the run", None, run.created_at)


def of_slot(run: Run, one: WaitingExecution, facts: LiveFacts) -> Iterator[WaitingReason]:
    wait = facts.limits.get(one.id)
    if wait is not None:
        yield _reason(wait, named(one), one.id, begun_at(run, one))


def _reason(wait: SlotWait, who: str, step_id: str | None, since: str) -> WaitingReason:
    is_rate = wait.kind is LimitKind.RATE
    details: dict[str, Detail] = {"scope": wait.scope, "limit": wait.allowed.limit}
    details |= {} if wait.key is None else {"key": wait.key}
    details |= {} if is_rate else {"holders": wait.holders}
    details |= {} if wait.place is None else {"place": wait.place}
    details |= {} if wait.oldest is None else {"held_by": wait.oldest}
    return WaitingReason(
        step_id=step_id,
        reason=Reason.RATE_LIMIT if is_rate else Reason.CONCURRENCY,
        since=since,
        text=f"{who} waits for {_limit(wait)}: {_why(wait)}{_place(wait)}; {_way_out(wait)}",
        until=None if wait.next_at is None or wait.place != 1 else rfc3339(wait.next_at),
        details=details,
    )


def _limit(wait: SlotWait) -> str:
    of_key = "" if wait.key is None else f", key {quoted(wait.key)}"
    plural = "" if wait.allowed.limit == 1 else "s"
    what = "" if wait.kind is LimitKind.RATE else f" {WHAT[wait.kind]}{plural} at a time"
    overridden = ", overridden" if wait.overridden else ""
    word = "rate limit" if wait.kind is LimitKind.RATE else "limit"
    return f"{word} {quoted(wait.scope)} ({allowed_text(wait.allowed)}{what}{of_key}{overridden})"


def _why(wait: SlotWait) -> str:
    if not wait.allowed.limit:
        return "it lets nothing begin"
    if wait.kind is LimitKind.RATE:
        return (
            "its next token comes soon" if wait.next_at is None else f"its next token comes at {rfc3339(wait.next_at)}"
        )
    if not wait.holders:
        return "its owner is about to decide"
    go_on = "1 goes on" if wait.holders == 1 else f"{wait.holders} go on"
    return go_on if wait.oldest is None else f"{go_on}, the oldest of them is of run {wait.oldest}"


def _place(wait: SlotWait) -> str:
    return "" if wait.place is None else f"; place {wait.place} of {wait.waiting} that wait"


def _way_out(wait: SlotWait) -> str:
    options = f"{wait.scope} --kind {wait.kind}" + ("" if wait.key is None else f" --key {quoted(wait.key)}")
    if wait.allowed.limit:
        return f"`penstock limit show {options}` has them all, and `penstock limit set` allows more"
    if wait.overridden:
        return f"`penstock limit reset {options}` lets what is registered count again"
    return f"`penstock limit set {wait.scope} N --kind {wait.kind}` lets it begin"
