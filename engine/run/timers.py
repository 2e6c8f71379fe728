"""The timers of a state, and how they change with it.

A step has up to three: its deadline or the time of its retry (`due`), the last moment of its loop (`until`), and the
end of the wait for the worker it is bound to (`fallback`); one that sleeps has the end of its sleep (`wake_at`). A
timer's name says which, for which iteration, and after how many pauses, so that no two are mixed up.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec.structs import replace

from penstock.engine.run.commands import Command, SetTimer, WithdrawTimer
from penstock.engine.run.event_payloads import TimerRef
from penstock.engine.run.state import RUN_OPEN, Run, StepState, StepStatus

WORKFLOW_TIMER = "workflow"


class TimerKind(StrEnum):
    """The purpose of a step's timer, as its stored name begins.

    TIMEOUT: the deadline of an execution. RETRY: the next execution is to be ordered. LOOP: the loop's last moment.
    APPROVAL: its expiry. STICKY: the bound worker has not begun the task. SLEEP: the end of
    a sleep. WAIT: no event came in time. LOST: the bound worker does not hold the task
    any more. RESTORED: a backup was restored, and nobody holds the task. These two are never set.
    """

    TIMEOUT = "timeout"
    RETRY = "retry"
    LOOP = "loop"
    APPROVAL = "approval"
    STICKY = "sticky"
    SLEEP = "sleep"
    WAIT = "wait"
    LOST = "lost"
    RESTORED = "restored"


# The kinds that `due` of a step stands for.
_OF_DUE = frozenset({TimerKind.TIMEOUT, TimerKind.RETRY, TimerKind.APPROVAL})
_BEGUN = frozenset({StepStatus.QUEUED, StepStatus.RUNNING})


def live_timers(run: Run) -> list[SetTimer]:
    """Every timer of this state, but those that have fired while the run is paused; none when the run is going to
    fail."""
    if run.status not in RUN_OPEN or run.failing:
        return []
    timers = [] if run.due is None else [workflow_timer(run, run.due)]
    for step_id, step in run.steps.items():
        timers += step_timers(run, step_id, step)
        if step.items is not None:
            timers += item_timers(run, step_id, step)
    if run.pause is None or not run.pause.timers:
        return timers
    fired = frozenset(run.pause.timers)
    return [timer for timer in timers if timer.timer not in fired]


def asleep_until(run: Run) -> float | None:
    """When the first of its sleeps ends, if the run waits for nothing but sleeps; else None."""
    first = None
    for step in run.steps.values():
        if step.status in _BEGUN:
            if step.wake_at is None:
                return None
            first = step.wake_at if first is None else min(first, step.wake_at)
    return first


def item_timers(run: Run, map_id: str, step: StepState) -> list[SetTimer]:
    """The timers of the elements of a map."""
    if step.items is None:
        return []
    timed = (number for number, element in step.items.numbered() if element.due or number in step.item_states)
    found: list[SetTimer] = []
    for item in (f"{map_id}.{number}" for number in timed):
        found += step_timers(run, item, run.step(item))
    return found


def workflow_timer(run: Run, due: float) -> SetTimer:
    return SetTimer(workflow_timer_name(run), due, attempt=run.resumes or None)


def workflow_timer_name(run: Run) -> str:
    """A timeout after a pause of the run is another timer, with `+<pauses>`, so that one from before is ignored."""
    return f"{WORKFLOW_TIMER}+{run.pauses}" if run.pauses else WORKFLOW_TIMER


def with_timeout(run: Run, timeout_s: float | None, at: float) -> tuple[Run, list[Command]]:
    """The run, which begins or goes on `at` that time (s since the epoch), and the timer that ends it; a run without a
    timeout has none."""
    if timeout_s is None:
        return run, []
    due = at + timeout_s
    return replace(run, due=due), [workflow_timer(run, due)]


def step_timers(run: Run, step_id: str, step: StepState) -> list[SetTimer]:
    """The step's timers in this state."""
    return [
        SetTimer(timer_name(kind, step_id, step), due, step_id, _number(run, step, kind)) for kind, due in _armed(step)
    ]


def fired_timer(run: Run, step_id: str, step: StepState, fired: TimerRef) -> TimerKind | None:
    """Which timer of the step has fired; None for a timer that is not, or no longer, set in this state."""
    if fired.timer == lost_timer(step_id, step):
        waits = step.sticky is not None and step.status is StepStatus.RUNNING and fired.attempt == step.attempts
        return TimerKind.LOST if waits else None
    if fired.timer == restored_timer(step_id, step):
        return TimerKind.RESTORED if is_out(step) and fired.attempt == step.attempts else None
    if step.waits_for is not None and fired.timer == timer_name(TimerKind.WAIT, step_id, step):
        waits = step.status is StepStatus.RUNNING and fired.attempt == step.attempts
        return TimerKind.WAIT if waits else None
    for kind, _ in _armed(step):
        if fired.timer == timer_name(kind, step_id, step):
            return kind if fired.attempt in (None, _number(run, step, kind)) else None
    return None


def lost_timer(step_id: str, step: StepState) -> str:
    """The name of the timer that maintenance appends when the bound worker of a running step no longer holds its
    task."""
    return timer_name(TimerKind.LOST, step_id, step)


def restored_timer(step_id: str, step: StepState) -> str:
    """The name of the timer that is appended, when a service is restored from a backup, for each task that was out."""
    return timer_name(TimerKind.RESTORED, step_id, step)


def is_out(step: StepState) -> bool:
    """Whether a worker has the step's task, or it waits for one."""
    return step.status is StepStatus.RUNNING or (step.status is StepStatus.QUEUED and step.due is None)


def timer_name(kind: TimerKind, step_id: str, step: StepState) -> str:
    """`<kind>.<step_id>`, in later iterations with `~<iteration>`.

    A timeout after a pause is another timer, with `+<pauses>`, so that a timeout from before the pause is ignored.
    """
    if kind is TimerKind.LOOP:
        return f"loop.{step_id}"
    name = f"{kind}.{step_id}~{step.iteration}" if step.iteration else f"{kind}.{step_id}"
    return f"{name}+{step.pauses}" if step.pauses and kind in _OF_DUE else name


def retimed(run: Run, step_id: str, before: StepState, after: StepState) -> list[Command]:
    """The commands that change the timers of one state of a step to those of the next."""
    if not _timed(before):
        return [*step_timers(run, step_id, after)] if _timed(after) else []
    if not _timed(after):
        return [WithdrawTimer(timer.timer, timer.due) for timer in step_timers(run, step_id, before)]
    old = {timer.timer: timer for timer in step_timers(run, step_id, before)}
    new = {timer.timer: timer for timer in step_timers(run, step_id, after)}
    withdrawn = [WithdrawTimer(timer.timer, timer.due) for timer in old.values() if timer.timer not in new]
    return [*withdrawn, *(timer for timer in new.values() if old.get(timer.timer) != timer)]


def _timed(step: StepState) -> bool:
    return step.due is not None or step.until is not None or step.fallback is not None or step.wake_at is not None


def _armed(step: StepState) -> list[tuple[TimerKind, float]]:
    """The kinds of timers that are set for the step, each with the time at which it fires (s since the epoch)."""
    armed = []
    if step.due is not None:
        armed.append((_due_kind(step), step.due))
    if step.until is not None:
        armed.append((TimerKind.LOOP, step.until))
    if step.fallback is not None:
        armed.append((TimerKind.STICKY, step.fallback))
    if step.wake_at is not None:
        armed.append((TimerKind.SLEEP, step.wake_at))
    return armed


def _due_kind(step: StepState) -> TimerKind:
    """The kind of `due`: the retry of a queued step, the expiry of an approval, else the timeout of a running step."""
    if step.status is StepStatus.QUEUED:
        return TimerKind.RETRY
    return TimerKind.TIMEOUT if step.token is None else TimerKind.APPROVAL


def _number(run: Run, step: StepState, kind: TimerKind) -> int:
    """What the timer was set for: the attempt, or for a loop, whose timer spans attempts, the number of resumptions."""
    return run.resumes if kind is TimerKind.LOOP else step.attempts
