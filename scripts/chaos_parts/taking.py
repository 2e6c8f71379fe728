"""What a history says of a run that repeats another one from a step: it begins when it has an event of each step that
it takes over, with the output whole. The elements of a map come before the map, the plan of a planner before its
steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.engine.run.kinds.map import Mapped
from penstock.engine.run.workflow import StepPlan

from .fragments import lasts
from .step_account import DONE, Seen, StepAccount

if TYPE_CHECKING:
    from .account import Account


def announced(seen: Seen) -> set[str] | None:
    """The steps that are to be taken over, as the run's first event says; None: it begins at once."""
    takes = (seen.payload or {}).get("takes")
    return None if takes is None else {*takes.get("done", ()), *takes.get("parts", ())}


def take(account: Account, seen: Seen, step: StepAccount | None, plan: StepPlan | None) -> None:
    """An event of a run that has not taken over everything yet. What is not taken over changes nothing."""
    assert account.taking is not None
    if step is None:
        step, plan = _handler(account, seen) or (None, None)
    if seen.type == "step.taken_over" and "items" in seen.payload and (seen.step_id or "") not in account.steps:
        _element(account, seen)
    elif step is None or plan is None:
        account.problems.append(f"{seen.type} of a step {seen.step_id} that the workflow has not")
    elif seen.type == "planner.expanded" and plan.id in account.taking:
        account.add_fragment(step, plan, seen.payload["steps"])
    elif seen.type == "step.taken_over" and plan.id in account.taking:
        _step(account, seen, step, plan)
    else:
        account.late += 1


def _handler(account: Account, seen: Seen) -> tuple[StepAccount, StepPlan] | None:
    """What has handled the failure of a step that has recovered by it."""
    handled = account.plans.get((seen.step_id or "").rpartition(".")[0])
    plan = None if handled is None else handled.on_failure
    if plan is None or plan.id != seen.step_id or plan.id not in (account.taking or ()):
        return None
    account.plans[plan.id] = plan
    return account.steps.setdefault(plan.id, StepAccount(handles=plan.handles)), plan


def _element(account: Account, seen: Seen) -> None:
    map_id, _, number = (seen.step_id or "").rpartition(".")
    whole = account.steps.get(map_id)
    if whole is None or map_id not in (account.taking or ()) or not int(number) < seen.payload["items"]:
        account.problems.append(f"{seen.type} ({seen.seq}) of a step {seen.step_id} that is not taken over")
        return
    whole.elements = whole.elements or [StepAccount() for _ in range(seen.payload["items"])]
    _copy(whole.elements[int(number)], seen)


def _step(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
    assert account.taking is not None
    _copy(step, seen)
    if step.status == "completed" and "output" not in seen.payload:
        if seen.payload.get("items") == 0:
            step.elements = []
        step.output = _made(account, step, plan)
    account.taking.discard(plan.id)
    if not account.taking:
        account.taking = None
        if account.status == "running":  # else it begins when it has its slots
            account.enter(seen)


def _copy(step: StepAccount, seen: Seen) -> None:
    taken: dict[str, Any] = seen.payload
    status = taken["status"]
    step.status = "out" if status == "running" else status
    step.attempt, step.iteration = taken.get("attempts", 0), taken.get("iteration", 0)
    step.output, step.error, step.received = taken.get("output"), taken.get("error") or "", taken.get("received")
    step.taken = step.began = step.ever_began = True
    step.done_seq = seen.seq if status in DONE else None


def _made(account: Account, step: StepAccount, plan: StepPlan) -> Any:
    """What its elements, or the steps of its plan, make together."""
    if step.elements is not None:
        assert isinstance(plan.config, Mapped)
        wraps = plan.config.continues
        return [one.result(wraps) for one in step.elements]
    last = lasts(account.plans, step.fragment or {})
    outputs = {name: account.steps[one].output for name, one in last.items()}
    return outputs if len(outputs) > 1 else next(iter(outputs.values()), None)
