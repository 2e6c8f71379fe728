"""What a history says of a run that is paused: what runs goes on, nothing new begins, and what comes due meanwhile, or
is decided about an approval, waits until the run goes on. The time of the workflow's timeout stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from . import step_events
from .step_account import Seen, StepAccount

if TYPE_CHECKING:
    from .account import Account

WAITING_TIMERS = ("retry", "sleep", "wait", "loop")
DECISIONS = ("approval.granted", "approval.rejected", "approval.expired")
BEGINNINGS = ("step.started", "approval.requested")


class Pause(Struct):
    """`began` is the event of the pause. `start` is that of a scheduled run whose time came; `timers` fired, and
    `decisions` were made, and wait."""

    began: Seen
    start: Seen | None = None
    timers: list[Seen] = field(default_factory=list)
    decisions: list[Seen] = field(default_factory=list)


def pause(account: Account, seen: Seen) -> None:
    """A run that has not ended is paused; one that is paused already stays so."""
    if account.ended or not account.status or account.pause is not None:
        account.late += 1
        return
    account.pause = account.last_pause = Pause(seen)
    account.pauses += 1


def go_on(account: Account, seen: Seen) -> None:
    """What waited takes effect; then it is the turn of what nobody has begun."""
    paused, account.pause = account.pause, None
    if paused is None:
        account.late += 1
        return
    for step in waiting(account):
        step.first_turn = step.first_turn or step.ordered
    if paused.start is not None and account.status == "scheduled":
        account.started = paused.start
        account.begin_or_wait(seen)
    for decision in paused.decisions:
        found = account.find(decision.step_id or "")
        if found is not None and account.status == "running":
            step_events.decide(account, decision, *found, moment=seen)
    for timer in paused.timers:
        account.fire(timer, seen)
    for step in waiting(account):
        if step.ordered is not seen:
            step.turns.append(seen)
            step.ordered = seen


def waiting(account: Account) -> list[StepAccount]:
    """The executions that nobody has begun, and that wait for nothing else."""
    return [
        step
        for _, step in account.executions()
        if step.status == "out" and not (step.began or step.waits or step.paused) and step.ordered is not None
    ]


def keeps_timer(account: Account, seen: Seen, kind: str, step: StepAccount) -> bool:
    """Whether it waits until the run goes on. A loop that runs is ended by its time all the same."""
    if account.pause is None or kind not in WAITING_TIMERS or (kind == "loop" and step.began):
        return False
    account.pause.timers.append(seen)
    return True


def keeps_decision(account: Account, seen: Seen, step: StepAccount) -> bool:
    """The first one about a step counts, and takes effect later."""
    if account.pause is None or seen.type not in DECISIONS or account.status != "running" or not step.waits:
        return False
    if step.status != "out" or seen.attempt not in (None, step.attempt):
        return False
    if any(one.step_id == seen.step_id for one in account.pause.decisions):
        account.late += 1
    else:
        account.pause.decisions.append(seen)
        account.decisions.append(seen)
    return True


def check_begin(account: Account, seen: Seen, step: StepAccount) -> None:
    """An execution whose turn came while the run is paused does not begin."""
    if account.pause is None or seen.type not in BEGINNINGS or step.ordered is None or step.status != "out":
        return
    is_it = seen.attempt is None or (seen.attempt, seen.iteration or 0) == (step.attempt, step.iteration)
    if is_it and not (step.began or step.waits) and step.ordered.seq > account.pause.began.seq:
        account.problems.append(f"{seen.type} ({seen.seq}) of {seen.step_id} while the run is paused")
