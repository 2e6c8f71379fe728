"""Whoever shows a run shows the same, and nothing is left over of runs that have ended."""

from __future__ import annotations

from collections.abc import Iterator

from .account import Account
from .evidence import Evidence, Violation
from .said import all_said_is_kept
from .step_account import StepAccount


def snapshot_is_the_fold(evidence: Evidence) -> Iterator[Violation]:
    """The stored state is, byte by byte, what the engine makes of the whole history."""
    for run_id, fold in evidence.folds.items():
        found = evidence.snapshots.get(run_id)
        if found is None:
            yield Violation("snapshot is the fold", "there is no snapshot", run_id)
        elif found != fold:
            yield Violation(
                "snapshot is the fold", f"the snapshot is {found[:2000]!r}, the fold {fold[:2000]!r}", run_id
            )


def all_show_the_same(evidence: Evidence) -> Iterator[Violation]:
    """Snapshot, `GET /runs/{id}` and the list show what the history means, and no run is missing anywhere."""
    for where, shown in evidence.shown.items():
        for run_id, history in evidence.histories.items():
            found = shown.get(run_id)
            problems = ["it is not there"] if found is None else history.shown.differences(found)
            for problem in problems:
                yield Violation("shown the same", f"{where}: {problem}", run_id)
        for run_id in shown.keys() - evidence.histories.keys():
            yield Violation("shown the same", f"{where}: it is there, and has no history", run_id)


def dead_letters(evidence: Evidence) -> Iterator[Violation]:
    """Each step that has failed for good has one, of a map its element; but no failure that the definition provides
    for."""
    for run_id, history in evidence.histories.items():
        account = history.account
        for step_id, step in account.executions() if account.status == "failed" else ():
            if step.status == "failed" and _owes(account, step_id) and (run_id, step_id) not in evidence.dead_letters:
                yield Violation("dead letters", f"step {step_id} has failed for good, and has none", run_id)
        for step_id, step in account.executions() if not account.resumes else ():
            if _is_provided_for(account, step_id, step) and (run_id, step_id) in evidence.dead_letters:
                yield Violation("dead letters", f"step {step_id} has one, and what follows is provided for", run_id)


def _owes(account: Account, step_id: str) -> bool:
    step, plan = account.found(step_id)
    if step.elements is not None and any(element.status == "failed" for element in step.elements):
        return False  # the element has it
    whole = plan if plan.item is None else account.plans[step_id.rpartition(".")[0]]
    if whole.on_failure is None:
        return not plan.tolerated
    handler = account.steps.get(whole.on_failure.id)
    return handler is not None and handler.status == "failed"


def _is_provided_for(account: Account, step_id: str, step: StepAccount) -> bool:
    _, plan = account.found(step_id)
    return step.status == "recovered" or (step.status == "failed" and plan.tolerated)


def said_is_kept(evidence: Evidence) -> Iterator[Violation]:
    """Lines and chunks of what has completed are there, in their order; what was dropped is mentioned."""
    for run_id, problem in all_said_is_kept(evidence):
        yield Violation("said", problem, run_id)


def nothing_left(evidence: Evidence) -> Iterator[Violation]:
    """No task is there when every run has ended, neither waiting nor forgotten by the broker. (A timer may be: it will
    fire, and change nothing.)"""
    for subject in evidence.tasks:
        yield Violation("nothing left", f"a task is still queued: {subject}", subject.rpartition(".")[2])


def no_bug_logged(evidence: Evidence) -> Iterator[Violation]:
    for line in evidence.logged:
        yield Violation("log", line)


def no_internal_error(evidence: Evidence) -> Iterator[Violation]:
    """No request is answered 500, but for what could not be written into a run's history. The log has the traceback."""
    for what in evidence.failed:
        yield Violation("internal error", what)
