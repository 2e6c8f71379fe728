"""What a history says of a run that undoes its steps: in the reverse order of their completion, each once.

From when it fails, or is cancelled with `compensate`, no step begins. What runs and can be undone is waited for, and
undone next if it completes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from penstock.engine.run.workflow import StepPlan

from .step_account import Seen, StepAccount, numbered

if TYPE_CHECKING:
    from .account import Account

ENDS = {"failed": "workflow.failed", "cancelled": "workflow.cancelled"}


class Compensation(Struct):
    """`ends` is how the run will end. `todo` is still to be undone, the next one last; `known` was so from the
    beginning, the next one first. `undoing` is being undone, `awaited` runs and may still complete. `failed`: something
    could not be undone. `over`: nothing is left."""

    ends: str
    todo: list[str]
    known: list[str]
    undoing: str | None = None
    awaited: set[str] = set()
    failed: bool = False
    over: bool = False

    def is_end(self, seen: Seen) -> bool:
        """Whether this event is the end that follows when nothing is left."""
        said = (seen.payload or {}).get("compensation")
        return self.over and seen.type == ENDS[self.ends] and said == self.outcome

    @property
    def outcome(self) -> str:
        return "failed" if self.failed else "completed"


def has_work(account: Account) -> bool:
    """Whether something can be undone that has completed, or runs and may yet complete."""
    if any(_completed(account)):
        return True
    return any(_undoing(account, step_id) is not None for step_id in _outliving(account))


def begin(account: Account, seen: Seen, ends: str) -> None:
    """The run undoes its steps from here on, and then ends so."""
    todo = [step_id for _, _, step_id in sorted(_completed(account))]
    awaited = set(_outliving(account))
    account.status, account.doomed = "compensating", False
    account.compensation = Compensation(ends, todo, known=todo[::-1], awaited=awaited)
    for step_id, step in account.steps.items():
        _stop(account, step_id, step, awaited)
    _next(account, seen)


def announced(account: Account, seen: Seen) -> None:
    """The engine says what it undoes, the first one first, as far as it was known when it began; a map for its
    elements."""
    assert account.compensation is not None
    steps = (step_id if step_id in account.plans else _before(step_id) for step_id in account.compensation.known)
    wanted, said = [*dict.fromkeys(steps)], (seen.payload or {}).get("steps", [])
    if wanted != said:
        account.problems.append(f"workflow.compensating ({seen.seq}) says {said}, and {wanted} are undone")


def take(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
    """An event of a step that was out when this began: it is late, but counts for what can be undone, and for
    children."""
    assert account.compensation is not None
    state = account.compensation
    child = plan.kind.name == "sub_workflow"
    counts = _outlives(plan) and not state.over and _is_late(seen, step, plan.id in state.awaited)
    counts = counts and not _of_completed_map(account, plan)
    if not counts or child is not (seen.type == "child.ended"):
        account.late += 1
        return
    completes = seen.type == "step.completed" or (child and seen.payload["status"] == "completed")
    if completes:
        _count_in(step)
        step.status, step.output, step.done_seq = "completed", seen.payload, seen.seq
        if child:
            step.output = seen.payload.get("output")
        if _undoing(account, plan.id) is not None:
            state.todo.append(plan.id)
        _not_awaited(account, seen, plan)
    elif seen.type == "step.started" and step.status == "cancelled" and not step.began:
        _count_in(step)
        step.status, step.began, step.ever_began = "out", True, True
        state.awaited.add(plan.id)
        _as_its_elements(account, plan)
    elif seen.type in ("step.failed", "step.continue", "child.ended") and plan.id in state.awaited:
        give_up(account, seen, step, plan)
        step.base, step.erred = step.attempt, True
    else:
        account.late += 1


def _of_completed_map(account: Account, plan: StepPlan) -> bool:
    """Somebody has completed the map by hand: its elements are not waited for."""
    return plan.item is not None and account.steps[_before(plan.id)].status == "completed"


def give_up(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
    """It is not waited for any more."""
    assert account.compensation is not None
    if plan.id in account.compensation.awaited:
        step.status = "cancelled"
        _not_awaited(account, seen, plan)


def undone(account: Account, seen: Seen, failed: bool) -> None:
    """What undoes a step has completed, or has failed for good: the next one follows all the same."""
    assert account.compensation is not None
    account.compensation.undoing = None
    account.compensation.failed |= failed
    _next(account, seen)


def _next(account: Account, seen: Seen) -> None:
    assert account.compensation is not None
    state = account.compensation
    if state.awaited or state.undoing is not None:
        return
    if not state.todo:
        state.over = True
        return
    state.undoing = state.todo.pop()
    plan = _undoing(account, state.undoing)
    assert plan is not None
    if plan.id in account.steps:
        account.problems.append(f"{state.undoing} is undone twice ({seen.seq})")
    account.plans[plan.id] = plan
    account.steps.setdefault(plan.id, StepAccount(handles=state.undoing)).order(seen)


def _undoing(account: Account, step_id: str) -> StepPlan | None:
    """The plan of what undoes a step, or an element."""
    _, plan = account.found(step_id)
    found = plan.compensate
    return None if found is None else replace(found, id=f"{step_id}.compensate", handles=step_id)


def _completed(account: Account) -> Iterator[tuple[int, int, str]]:
    """What can be undone, by when it has completed; a planner after the last step of its plan, by the same event."""
    for step_id, step in account.steps.items():
        if step.status in ("recovered", "skipped") or step.handles is not None:
            continue
        if step.status == "completed" and _undoing(account, step_id) is not None:
            yield step.done_seq or 0, -len(step_id), step_id
        for element_id, element in numbered(step_id, step):
            if element.status == "completed" and _undoing(account, element_id) is not None:
                yield element.done_seq or 0, -len(element_id), element_id


def _outliving(account: Account) -> Iterator[str]:
    """What runs, and is waited for: tasks that can be undone, and children, which undo their own steps first. Of a map
    that has failed, the elements that ran then."""
    for step_id, step in account.steps.items():
        if step.handles is not None or step.status in ("recovered", "skipped"):
            continue
        if step.status == "out" and step.began and _outlives(account.plans[step_id]):
            yield step_id
        cut = step.status == "failed"
        for element_id, element in numbered(step_id, step) if step.status in ("out", "failed") else ():
            plan = account.found(element_id)[1]
            runs = element.status == ("cancelled" if cut else "out") and element.began
            if runs and (plan.compensate is not None or (not cut and _outlives(plan))):
                yield element_id


def _outlives(plan: StepPlan) -> bool:
    if plan.kind.name == "sub_workflow":
        return True
    worked = plan.kind.name in ("normal", "agent_loop", "http")
    return worked and plan.compensate is not None


def _stop(account: Account, step_id: str, step: StepAccount, awaited: set[str]) -> None:
    waited = [element for element_id, element in numbered(step_id, step) if element_id in awaited]
    for element in step.elements or ():
        if not any(element is one for one in waited):
            element.cancel()
    for element in waited:
        element.status = "out"
    if step_id not in awaited and not (waited and step.status == "out"):
        step.cancel_itself()


def _is_late(seen: Seen, step: StepAccount, awaited: bool) -> bool:
    """Whether it is of the execution that was out when the run began to undo its steps."""
    if awaited and seen.attempt is None:
        return seen.iteration in (None, step.iteration)
    was_out = step.status == "cancelled" and step.attempt > step.base
    return (seen.attempt, seen.iteration or 0) == (step.attempt, step.iteration) and (awaited or was_out)


def _count_in(step: StepAccount) -> None:
    """It was cancelled before anybody had begun it, and now somebody has."""
    if step.status == "cancelled" and not (step.ever_began or step.erred):
        step.unbegun -= 1


def _not_awaited(account: Account, seen: Seen, plan: StepPlan) -> None:
    assert account.compensation is not None
    account.compensation.awaited.discard(plan.id)
    _as_its_elements(account, plan)
    _next(account, seen)


def _as_its_elements(account: Account, plan: StepPlan) -> None:
    """A map runs as long as one of its elements does, unless it has failed."""
    if plan.item is None:
        return
    whole = account.steps[_before(plan.id)]
    if whole.status in ("out", "cancelled"):
        whole.status = "out" if any(one.status == "out" for one in whole.elements or ()) else "cancelled"


def _before(step_id: str) -> str:
    return step_id.rpartition(".")[0]
