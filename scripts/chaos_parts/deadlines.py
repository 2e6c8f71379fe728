"""When each timer of a run may fire at the earliest, computed from its history and its definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.config.limits import STICKY_FALLBACK_S
from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.execution.retry import delay_s, retry_after_s
from penstock.engine.run.kinds.agent_loop import loop_of
from penstock.engine.run.kinds.approval import approval_of
from penstock.engine.run.workflow import StepPlan, Workflow
from penstock.engine.times import instant

from .account import Account
from .step_account import Seen, StepAccount

TOLERANCE_S = 0.005  # the broker's schedules count whole milliseconds


def early_timers(run_id: str, workflow: Workflow, history: Sequence[Seen], restored: bool = False) -> Iterator[str]:
    """A sentence for each timer that fired before its time, or that was never set. In a service that was `restored`
    there is one for each task that was out when the backup was made."""
    account, due = Account(workflow), dict[tuple[str, int], float]()
    for seen in history:
        if seen.type == "timer.fired" and not (restored and seen.payload["timer"].startswith("restored.")):
            yield from _early(seen, due)
        before = {step_id: (step.attempt, step.iteration, step.status) for step_id, step in account.executions()}
        status = account.status
        account.take(seen)
        _set_run_timer(account, seen, status, due)
        for step_id, step in account.executions():
            if step.status == "out" and before.get(step_id) != (step.attempt, step.iteration, step.status):
                _set_waits(account, run_id, step_id, seen, due)
        if seen.step_id is not None and (found := account.find(seen.step_id)) is not None:
            _set_step_timer(account, seen, *found, due)


def _early(seen: Seen, due: dict[tuple[str, int], float]) -> Iterator[str]:
    timer, attempt = seen.payload["timer"], seen.payload.get("attempt") or 0
    at = due.get((timer, attempt))
    if at is None and timer.startswith("timeout."):  # set again, when what is undone waits for a step that still runs
        at = due.get((timer.partition("+")[0], attempt))
    if at is None:
        yield f"the timer {timer} of attempt {attempt} ({seen.seq}) was never set"
    elif seen.at < at - TOLERANCE_S and not seen.payload.get("early"):  # somebody has ended the wait
        yield f"the timer {timer} of attempt {attempt} ({seen.seq}) fired {at - seen.at:.3f} s early"


def _set_run_timer(account: Account, seen: Seen, before: str, due: dict[tuple[str, int], float]) -> None:
    """From when it begins, or goes on after a failure. Its time stands still while the run is paused; a timer after a
    pause has another name."""
    lasts_s, paused = account.workflow.timeout_s, account.last_pause
    if lasts_s is None or account.pause is not None:
        return
    name = _run_timer(account.pauses), account.resumes
    if before in ("", "scheduled", "pending", "failed") and account.status == "running":
        due.setdefault(name, seen.at + lasts_s)
    elif seen.type == "workflow.unpaused" and before == "running" and paused is not None and name not in due:
        former = due.get((_run_timer(account.pauses - 1), account.resumes))
        left_s = lasts_s if former is None else max(0.0, former - paused.began.at)
        due[name] = seen.at + left_s


def _run_timer(pauses: int) -> str:
    return f"workflow+{pauses}" if pauses else "workflow"


def _set_waits(account: Account, run_id: str, step_id: str, seen: Seen, due: dict[tuple[str, int], float]) -> None:
    """The step was ordered just now, or will be after a pause."""
    step, plan = account.found(step_id)
    name = _suffixed(step_id, step.iteration)
    wait_s = 0.0
    if seen.step_id == step_id and seen.type == "child.ended":
        wait_s = delay_s(plan.retry, run_id, step_id, step.attempt - 1 - step.base)
    elif seen.step_id == step_id and seen.type == "step.failed":
        failure = Failure(**(seen.payload or {}))
        after = failure.failure_type == "retry_after"
        wait_s = retry_after_s(failure) if after else delay_s(plan.retry, run_id, step_id, step.attempt - 1 - step.base)
    elif seen.type == "step.continue" and (bounds := loop_of(plan)) is not None:
        wait_s = bounds.delay_s
    due["retry." + name, step.attempt] = seen.at + wait_s
    if account.workflow.sticky is not None:
        due["sticky." + name, step.attempt] = seen.at + wait_s + STICKY_FALLBACK_S


def _set_step_timer(
    account: Account, seen: Seen, step: StepAccount, plan: StepPlan, due: dict[tuple[str, int], float]
) -> None:
    step_id = plan.id
    if seen.type == "step.started" and isinstance(seen.payload, dict):
        for kind, field in (("sleep", "wake_at"), ("wait", "until")):
            if field in seen.payload:
                due.setdefault((f"{kind}.{step_id}", seen.attempt or 0), instant(seen.payload[field]))
    if seen.type == "step.started" and plan.timeout_s is not None:
        key = "timeout." + _suffixed(step_id, seen.iteration or 0), seen.attempt or step.attempt
        due.setdefault(key, seen.at + plan.timeout_s)
    if (
        seen.type == "step.started" and account.workflow.sticky == "soft"
    ):  # from here on its worker may be found to have lost it
        due.setdefault(("lost." + _suffixed(step_id, seen.iteration or 0), seen.attempt or step.attempt), seen.at)
    if seen.type == "step.started" and (bounds := loop_of(plan)) is not None and bounds.duration_s is not None:
        due.setdefault((f"loop.{step_id}", account.resumes), seen.at + bounds.duration_s)
    if seen.type == "approval.requested" and (asked := approval_of(plan)) is not None:
        due.setdefault((f"approval.{step_id}", step.attempt), seen.at + asked.timeout_s)


def _suffixed(step_id: str, iteration: int) -> str:
    return f"{step_id}~{iteration}" if iteration else step_id
