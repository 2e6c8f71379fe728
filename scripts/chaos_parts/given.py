"""What each execution is given, and what the storm's expressions give: worked out in Python, beside the service's own
evaluation of their text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.engine.run.workflow import StepPlan

from .account import Account
from .kind_workflows import (
    ASKING,
    ASLEEP,
    CHOSEN,
    DESERTED,
    GUARDIAN,
    LISTENING,
    LONG_S,
    PARENT,
    PLANNED,
    REFUSED,
    RESCUED,
    SHORT_S,
    STRICT,
    THREE,
    UNDONE,
    UNPLANNED,
    WAITING,
)
from .step_account import StepAccount

Result = Callable[[Account, StepPlan, Any], Any]
"""What an expression gives, of a run and a step of it; the last is what the execution would be given without it."""


def _output(account: Account, step_id: str) -> Any:
    return account.steps[step_id].output


# `with`, by workflow and step, without the number of an element.
WITH: Mapping[tuple[str, str], Result] = {
    (CHOSEN, "b"): lambda run, plan, _: {"key": run.input["key"], "by": f"after {_output(run, 'a')['by']}"},
    (CHOSEN, "c"): lambda run, plan, _: {"a": _output(run, "a"), "b": run.steps["b"].status},
    (STRICT, "m"): lambda run, plan, item: {"number": item["number"], "place": plan.item, "key": run.input["key"]},
    (PARENT, "child"): lambda run, plan, _: {"child": run.run_id, "by": _output(run, "a")["by"]},
    (RESCUED, "a.on_failure"): lambda run, plan, about: {
        "key": run.input["key"],
        "of": about["step"],
        "why": about["error"],
    },
    (UNDONE, "a.compensate"): lambda run, plan, about: {"key": run.input["key"], "by": about["output"]["by"]},
}
WHEN: Mapping[tuple[str, str], Callable[[Account], bool]] = {(CHOSEN, "b"): lambda run: _output(run, "a")["even"]}
SLEEPS_S: Mapping[tuple[str, str], Callable[[Account], float]] = {
    (ASLEEP, "nap"): lambda run: SHORT_S if _output(run, "a")["even"] else LONG_S,
    (PLANNED, "plan.nap"): lambda run: SHORT_S,
    (UNPLANNED, "plan.nap"): lambda run: SHORT_S,
    (GUARDIAN, "nap"): lambda run: SHORT_S,
}
# Whether an event is one that the step waits for.
MATCHES: Mapping[tuple[str, str], Callable[[Account, Any], bool]] = {
    (WAITING, "w"): lambda run, event: _is_about(run, event),
    (WAITING, "again"): lambda run, event: _is_about(run, event) and event["number"] != REFUSED,
    (ASKING, "w"): lambda run, event: _is_about(run, event),
    (DESERTED, "w"): lambda run, event: _is_about(run, event),
    (LISTENING, "w"): lambda run, event: True,
}


def _is_about(account: Account, event: Any) -> bool:
    return bool(event["order"]["key"] == account.input["key"])


def given(account: Account, step_id: str, attempt: int, iteration: int = 0) -> Any:
    """The input of an execution: of a worker's task, or of a child. Raises KeyError for one that is not there."""
    step, plan = account.found(step_id)
    if iteration:
        return step.inputs.get(iteration)
    default = _default(account, step, plan, attempt)
    result = WITH.get((account.workflow.name, _written(plan)))
    return default if result is None else result(account, plan, default)


def items_of(account: Account, plan: StepPlan) -> list[Any]:
    """The array of a map: most of the storm's have their dependency's output."""
    if account.workflow.name == DESERTED:
        return THREE
    found: list[Any] = dependencies_output(account, plan)
    return found


def dependencies_output(account: Account, plan: StepPlan) -> Any:
    """What a step receives unless it says otherwise."""
    names = plan.labels or plan.depends_on
    if not names:
        return account.input
    outputs = {name: _output(account, one) for name, one in zip(names, plan.depends_on, strict=True)}
    return outputs if len(outputs) > 1 else next(iter(outputs.values()))


def _default(account: Account, step: StepAccount, plan: StepPlan, attempt: int) -> Any:
    if plan.handles is not None and plan.kind.name == "compensate":
        undone, _ = account.found(plan.handles)
        return {"input": given(account, plan.handles, undone.attempt), "output": undone.output}
    if plan.handles is not None:
        return _about_failure(account, step, plan.handles, attempt)
    if plan.item is not None:
        return items_of(account, account.plans[plan.id.rpartition(".")[0]])[plan.item]
    return dependencies_output(account, plan)


def _about_failure(account: Account, handler: StepAccount, step_id: str, attempt: int) -> dict[str, Any]:
    """What a handler is told of the failure that came before this attempt of it."""
    error, attempts = handler.causes[max(first for first in handler.causes if first <= attempt)]
    received = given(account, step_id, attempts, account.steps[step_id].iteration)
    return {"step": step_id, "error": error, "input": received, "attempts": attempts}


def sleeps_s(account: Account, step_id: str) -> float | None:
    """How long the step sleeps, None if it is not known to. A planner in a plan gives the same plans as the first."""
    planner, _, name = step_id.rpartition(".")
    lasts = SLEEPS_S.get((account.workflow.name, f"{planner.partition('.')[0]}.{name}" if planner else name))
    return None if lasts is None else lasts(account)


def _written(plan: StepPlan) -> str:
    """The id of the step in whose definition it stands."""
    return plan.id.rpartition(".")[0] if plan.item is not None else plan.id
