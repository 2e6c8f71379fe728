"""What a history says of a step that somebody has completed by hand: its attempts, elements, child or handler are given
up, and the run goes on with the output that was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.run.workflow import StepPlan

from .step_account import DONE, Seen, StepAccount

if TYPE_CHECKING:
    from .account import Account


def complete(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
    """Where that is not possible, nothing changes."""
    if not _may_be(account, step, plan):
        account.late += 1
        return
    for element in step.elements or ():
        element.cancel()
    handler = None if plan.on_failure is None else account.steps.get(plan.on_failure.id)
    if handler is not None and handler.status == "out":
        handler.cancel()
    step.unbegun += step.status == "out" and not (step.began or step.waits)
    step.overridden = True
    account.complete(seen, step, plan, (seen.payload or {}).get("output"))


def _may_be(account: Account, step: StepAccount, plan: StepPlan) -> bool:
    """A step, or what handles its failure, that has not completed, and whose dependencies have ended; of a planner only
    until its plan is carried out."""
    if account.status != "running" or account.doomed or account.taking is not None or plan.item is not None:
        return False
    if step.status in DONE or step.fragment is not None:
        return False
    if plan.handles is not None:
        return account.steps[plan.handles].status == "failed"
    return account.ready(plan)
