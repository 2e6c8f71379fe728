"""What must hold between runs: a parent and its children, a run that has failed and the one that follows from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.engine.run.kinds.sub_workflow import ChildPlan

from .evidence import Evidence, History, Violation
from .executions import digest
from .given import given
from .step_account import Seen

ENDS = ("workflow.completed", "workflow.failed", "workflow.cancelled")


def one_child_an_attempt(evidence: Evidence) -> Iterator[Violation]:
    """An attempt of a step, or of an element, starts one child at the most, and an attempt that was started has it."""
    children = defaultdict[tuple[str, str, int], list[str]](list)
    for run_id, history in evidence.histories.items():
        if (parent := _parent(history)) is not None:
            children[parent].append(run_id)
    for (run_id, step_id, attempt), found in children.items():
        if len(found) > 1:
            yield Violation("children", f"attempt {attempt} of {step_id} has started several runs: {found}", run_id)
    for run_id, history in evidence.histories.items():
        for seen in history.seen:
            child = (seen.payload or {}).get("child_run_id") if seen.type == "step.started" else None
            key = run_id, seen.step_id or "", seen.attempt or 1
            if child is not None and child not in children[key] and child not in evidence.unborn:
                yield Violation("children", f"attempt {key[2]} of {key[1]} has not started its child {child}", run_id)


def children_were_ordered(evidence: Evidence) -> Iterator[Violation]:
    """A child is of the workflow that its parent's step names, and was given what that step says."""
    for run_id, history in evidence.histories.items():
        parent = _parent(history)
        if parent is None:
            continue
        above, step_id, attempt = evidence.histories.get(parent[0]), parent[1], parent[2]
        found = None if above is None else above.account.find(step_id)
        if above is None or found is None or attempt > found[0].attempt or not isinstance(found[1].config, ChildPlan):
            yield Violation("children", f"no attempt {attempt} of {step_id} of run {parent[0]} was ordered", run_id)
            continue
        if found[1].config.workflow != history.workflow.name:
            yield Violation("children", f"{step_id} of run {parent[0]} starts {found[1].config.workflow}", run_id)
        try:
            same = digest(given(above.account, step_id, attempt)) == digest(history.account.input)
        except (KeyError, IndexError, TypeError, ValueError):
            same = False
        if not same:
            yield Violation("children", f"it was given another input than {step_id} of run {parent[0]} says", run_id)


def parents_hear_the_true_end(evidence: Evidence) -> Iterator[Violation]:
    """What a parent is told of its child's end is how the child has ended, before that."""
    for run_id, history in evidence.histories.items():
        for seen in history.seen:
            if seen.type == "child.ended":
                for problem in _untrue(evidence, run_id, seen):
                    yield Violation("children", f"child.ended ({seen.seq}): {problem}", run_id)


def detached_children_go_on(evidence: Evidence) -> Iterator[Violation]:
    """Nobody waits for a detached child: it is not cancelled once its parent's step has completed, unless by hand."""
    for run_id, history in evidence.histories.items():
        above = evidence.histories.get((history.account.origin("parent") or {}).get("run_id", ""))
        if above is None or not history.account.origin("parent").get("detached"):
            continue
        step, _ = above.account.found(history.account.origin("parent")["step_id"])
        if step.status == "completed" and not step.overridden and history.account.status == "cancelled":
            yield Violation("children", "it was started to go on alone, and is cancelled", run_id)


def children_of_failed_runs_are_undone(evidence: Evidence) -> Iterator[Violation]:
    """A child that is cancelled because its parent fails undoes its own steps."""
    for run_id, history in evidence.histories.items():
        parent, account = _parent(history), history.account
        above = None if parent is None else evidence.histories.get(parent[0])
        if above is None or above.account.status != "failed" or account.status != "cancelled":
            continue
        can_be = [
            step_id
            for step_id, step in account.steps.items()
            if step.status == "completed" and account.plans[step_id].compensate is not None
        ]
        if can_be and account.compensation is None:
            yield Violation("children", f"its parent has failed, and it has not undone {can_be}", run_id)


def parents_list_their_children(evidence: Evidence) -> Iterator[Violation]:
    """The API lists the runs that a run has started, and no others."""
    wanted = defaultdict[str, set[str]](set)
    for run_id, history in evidence.histories.items():
        if (parent := _parent(history)) is not None:
            wanted[parent[0]].add(run_id)
    for run_id, listed in (evidence.children or {}).items():
        if set(listed) != wanted[run_id] or len(listed) != len(wanted[run_id]):
            yield Violation("children", f"it has {sorted(wanted[run_id])}, and {sorted(listed)} are listed", run_id)


def one_run_a_failure(evidence: Evidence) -> Iterator[Violation]:
    """Each time that a run fails, its workflow's `on_failure` starts one run, which is told of this failure."""
    following = defaultdict[str, list[History]](list)
    for history in evidence.histories.values():
        if (failed := history.account.origin("failure_of")) is not None:
            following[failed].append(history)
    for run_id, history in evidence.histories.items():
        wanted = sorted(digest(_about(history, failure)) for failure in _failures(history))
        found = sorted(digest(one.account.input) for one in following.pop(run_id, ()))
        if wanted != found:
            yield Violation(
                "failure runs", f"it has failed {len(wanted)} times, and {len(found)} runs follow from that", run_id
            )
    for failed, runs in following.items():
        yield Violation("failure runs", f"{len(runs)} runs follow from the failure of run {failed}, which is not there")


def _failures(history: History) -> list[Seen]:
    """The failures from which a run follows. A run that follows from one itself has none."""
    follows = history.workflow.on_failure is not None and history.account.origin("failure_of") is None
    return history.account.failures if follows else []


def _about(history: History, failure: Seen) -> Mapping[str, Any]:
    return {
        "run_id": history.run_id,
        "workflow": history.workflow.name,
        "error": failure.payload.get("error", ""),
        "failed_step": failure.payload.get("step_id"),
        "input": history.account.input,
    }


def _untrue(evidence: Evidence, run_id: str, seen: Seen) -> Iterator[str]:
    child_id, status = seen.payload["run_id"], seen.payload["status"]
    child = evidence.histories.get(child_id)
    if child is None:
        if child_id not in evidence.unborn or status != "cancelled":
            yield f"there is no run {child_id}"
        return
    if _parent(child) != (run_id, seen.step_id, seen.attempt or 1):
        yield f"run {child_id} is the child of {_parent(child)}"
    ends = [one for one in child.seen if one.type in ENDS and one.seq < seen.seq]
    end = next((one for one in ends if one.type == f"workflow.{status}"), None)
    if end is None:
        yield f"run {child_id} has not {status} before it, but {[one.type for one in ends]}"
    elif status == "completed" and end.payload.get("output") != seen.payload.get("output"):
        yield f"the output of run {child_id} is another one"


def _parent(history: History) -> tuple[str, str, int] | None:
    parent = history.account.origin("parent")
    return None if parent is None else (parent["run_id"], parent["step_id"], parent.get("attempt", 1))
