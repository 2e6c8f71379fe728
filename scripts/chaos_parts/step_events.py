"""What an event, or a timer, means to the step that it is about, by the kind of step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.engine.run.kinds.agent_loop import loop_of
from penstock.engine.run.kinds.sub_workflow import ChildPlan
from penstock.engine.run.kinds.wait_for_event import EventWaitPlan
from penstock.engine.run.workflow import StepPlan

from . import by_hand, compensation, pausing, slots
from .step_account import Begun, Seen, StepAccount

if TYPE_CHECKING:
    from .account import Account

ANSWERS = (
    "step.started",
    "step.completed",
    "step.failed",
    "step.continue",
    "child.ended",
    "event.received",
    "planner.expanded",
)
WITHOUT_WORKER = ("sleep", "map", "sub_workflow", "wait_for_event", "respond")


def take(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
    """An event of a step of a run that goes on."""
    if seen.type in ANSWERS and seen.attempt is not None and _ahead(seen.attempt, seen.iteration or 0, step):
        account.problems.append(f"{seen.type} ({seen.seq}) of an execution of {seen.step_id} that was not ordered yet")
    if seen.type == "step.started" and step.first_seq is None:
        step.first_seq = seen.seq
    pausing.check_begin(account, seen, step)
    slots.check_begin(account, seen, step, plan)
    if account.status == "compensating" and plan.handles is None:
        compensation.take(account, seen, step, plan)
    elif seen.type == "step.overridden":
        by_hand.complete(account, seen, step, plan)
    elif seen.type == "step.taken_over":
        account.problems.append(f"step.taken_over ({seen.seq}) of {seen.step_id}, which is not to be taken over")
    elif seen.type == "step.skipped":
        _skipped(account, seen, step, plan)
    elif seen.type.startswith("approval."):
        _approval(account, seen, step, plan)
    elif _ends_after_its_map(account, seen, step, plan):
        step.status, step.done_seq = "failed", seen.seq
        if seen.type == "step.completed":
            step.status, step.output = "completed", seen.payload
    elif step.status != "out" or plan.kind.name == "approval" or not _is_out(seen, step):
        account.late += 1
    elif plan.kind.name in WITHOUT_WORKER:
        _fact(account, seen, step, plan)
    elif plan.kind.name == "planner":
        _planner(account, seen, step, plan)
    else:
        _answer(account, seen, step, plan)


def _ends_after_its_map(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> bool:
    """Whether an element that was out when its map failed ends after all: it may have to be undone."""
    if plan.item is None or plan.compensate is None or seen.type not in ("step.completed", "step.failed"):
        return False
    whole = account.steps[plan.id.rpartition(".")[0]]
    return (whole.status, step.status, step.attempt) == ("failed", "cancelled", seen.attempt)


def take_timer(
    account: Account, seen: Seen, kind: str, attempt: int, iteration: int, step: StepAccount, plan: StepPlan
) -> None:
    """A step that waited for its retry is out then. Most others only lead to another event; some decide by
    themselves."""
    current = step.status == "out" and attempt in (0, step.attempt)
    if account.status == "compensating" and plan.handles is None:
        if current and kind in ("timeout", "lost", "restored"):  # nobody has its task any more
            compensation.give_up(account, seen, step, plan)
        return
    match kind:
        case "retry" if step.paused and (iteration, attempt) == (step.iteration, step.attempt):
            step.paused, step.ordered, step.turns = False, seen, [seen]
        case "loop" if step.status == "out" and attempt == account.resumes:
            account.fail(seen, step, plan, "its loop has taken too long")
        case "sleep" if current and "wake_at" in step.facts:
            _end(step, seen)
            account.complete(seen, step, plan, None)
        case "wait" if current and "event" in step.facts:
            _end(step, seen)
            _out_of_time(account, seen, step, plan)


def _end(step: StepAccount, seen: Seen) -> None:
    assert step.engine is not None
    step.engine.end = seen


def _ahead(attempt: int, iteration: int, step: StepAccount) -> bool:
    execution, last = (iteration, attempt), (step.iteration, step.attempt)
    return execution > last or (step.paused and execution == last)


def _is_out(seen: Seen, step: StepAccount) -> bool:
    if step.paused:
        return False
    if seen.attempt is None:
        return seen.iteration in (None, step.iteration)
    return (seen.attempt, seen.iteration or 0) == (step.attempt, step.iteration)


def _answer(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
    """What a worker says about its task."""
    match seen.type:
        case "step.started":
            step.began = step.ever_began = True
        case "step.completed":
            account.complete(seen, step, plan, seen.payload)
        case "step.failed":
            _failed(account, seen, step, plan, seen.payload or {})
        case "step.continue" if (seen.attempt or step.began) if loop_of(plan) is None else not account.doomed:
            _continue(account, seen, step, plan)
        case _:
            account.late += 1


def _failed(account: Account, seen: Seen, step: StepAccount, plan: StepPlan, failure: dict[str, Any]) -> None:
    """An attempt has failed. Another one follows, or the step has failed for good."""
    tries, error = step.attempt - step.base, failure.get("error", "")
    if failure.get("failure_type") == "non_retriable" or tries > plan.retry.retries or account.doomed:
        account.fail(seen, step, plan, error)
        return
    after = failure.get("failure_type") == "retry_after"
    pause = failure.get("retry_after_ms", 0) if after else plan.retry.initial_s
    step.retry(seen, pause > 0)


def _continue(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
    bounds = loop_of(plan)
    most = 0 if bounds is None else bounds.iterations_max
    if most is not None and step.iteration + 1 >= most:
        account.fail(seen, step, plan, "it has had all its iterations")
    else:
        step.iteration, step.attempt, step.base = step.iteration + 1, 1, 0
        step.inputs[step.iteration] = seen.payload
        step.erred = False
        step.began, step.paused = False, bounds is not None and bounds.delay_s > 0


def _fact(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
    """What the engine says about a step that no worker carries out."""
    match seen.type:
        case "step.started" if not step.began and isinstance(seen.payload, dict):
            step.began = step.ever_began = True
            step.facts = seen.payload
            _note(account, step, plan)
            _begun(account, seen, step, plan)
        case "step.failed":
            _failed(account, seen, step, plan, seen.payload or {})
        case "child.ended" if plan.kind.name == "sub_workflow" and _is_its_child(seen, step):
            _child_ended(account, seen, step, plan)
        case "event.received" if step.began and plan.kind.name == "wait_for_event" and not account.doomed:
            step.received = seen.payload["seq"]
            _end(step, seen)
            account.complete(seen, step, plan, seen.payload.get("body"))
        case _:
            account.late += 1


def _note(account: Account, step: StepAccount, plan: StepPlan) -> None:
    assert step.ordered is not None
    step.first_turn = step.first_turn or step.ordered
    step.engine = Begun(plan.id, step.attempt, tuple(step.turns), step.first_turn, step.facts)
    account.begun.append(step.engine)


def _begun(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
    match plan.config:
        case _ if "reply" in step.facts:  # what a step responds ends it
            account.complete(seen, step, plan, step.facts["reply"].get("body"))
        case _ if plan.kind.name == "map":
            account.begin_elements(seen, step, plan, step.facts.get("items", 0))
        case ChildPlan(detached=True):
            account.complete(seen, step, plan, {"run_id": step.facts["child_run_id"]})


def _is_its_child(seen: Seen, step: StepAccount) -> bool:
    """Whether a child's end is that of this attempt's. It may be in the log before the child's start is told."""
    return step.facts.get("child_run_id") in (None, seen.payload["run_id"])


def _child_ended(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
    child, error = f"child run {seen.payload['run_id']}", seen.payload.get("error")
    match seen.payload["status"]:
        case "completed" if seen.payload.get("output_bytes"):
            account.fail(seen, step, plan, f"the output of {child} is too large")
        case "completed":
            account.complete(seen, step, plan, seen.payload.get("output"))
        case "failed":
            _failed(account, seen, step, plan, {"error": f"{child} failed: {error or 'failed'}"})
        case _:
            account.fail(seen, step, plan, f"{child} was cancelled" + (f": {error}" if error else ""))


def _out_of_time(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
    waited = plan.config
    assert isinstance(waited, EventWaitPlan)
    if waited.goes_on:
        account.complete(seen, step, plan, None)
    else:
        account.fail(seen, step, plan, "no event came in time")


def _planner(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
    """A worker's task whose output is checked by the engine, and then carried out."""
    if step.fragment is not None or (step.planned and seen.worker is not None):
        account.late += 1
    elif step.planned and seen.type == "planner.expanded" and not account.doomed:
        step.planned = False
        if [one["id"] for one in seen.payload["steps"]] != [one["id"] for one in step.facts["steps"]]:
            account.problems.append(f"planner.expanded ({seen.seq}) with other steps than the worker's plan")
        account.insert(seen, step, plan, seen.payload["steps"])
    elif step.planned and seen.type == "step.failed":
        _failed(account, seen, step, plan, seen.payload or {})
    elif not step.planned and seen.type == "step.completed":
        step.planned = step.began = step.ever_began = True
        step.facts = seen.payload if isinstance(seen.payload, dict) else {}
    elif not step.planned and seen.type != "planner.expanded":
        _answer(account, seen, step, plan)
    else:
        account.late += 1


def _skipped(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
    """By its `skip_if` before it was its turn, by its `when` instead of its beginning."""
    by_condition = step.status == "out" and "when" in plan.expressions and not step.began
    if (step.status == "pending" and account.ready(plan)) or (by_condition and seen.attempt in (None, step.attempt)):
        account.skip(seen, step, plan)
    else:
        account.late += 1


def _approval(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
    current = seen.attempt in (None, step.attempt)
    if plan.kind.name != "approval" or account.doomed or not current or step.status != "out":
        account.late += 1
    elif seen.type == "approval.requested" and not step.waits:
        step.waits = step.ever_began = True
        step.first_seq = step.first_seq or seen.seq
    elif seen.type != "approval.requested" and step.waits and not pausing.keeps_decision(account, seen, step):
        account.decisions.append(seen)
        decide(account, seen, step, plan, seen)


def decide(account: Account, seen: Seen, step: StepAccount, plan: StepPlan, moment: Seen) -> None:
    """A decision about an approval takes effect, at once or when its run goes on."""
    if step.status != "out" or not step.waits or account.doomed:
        account.late += 1
    elif seen.type == "approval.granted":
        account.complete(moment, step, plan, seen.payload)
    else:
        account.fail(moment, step, plan, seen.type)
