"""What must hold in every run's history, whoever asked for it."""

from __future__ import annotations

from collections.abc import Iterator

from .deadlines import early_timers
from .evidence import Evidence, Violation
from .step_account import DONE

STARTS = ("workflow.started", "workflow.scheduled")
DECIDING = ("workflow.failed",)
REASONS = (
    "chaos: ",
    "step timeout exceeded",
    "workflow timeout exceeded",
    "approval expired",
    "rejected",
    "delivered 10 times without an answer",
    "no event chaos-answer came within",
    " was cancelled",
    " answered 404",
)
LATE_REASONS = ("agent loop exceeded its max_duration",)  # of a copied run: the storm went on meanwhile, for long


def every_run_ends(evidence: Evidence) -> Iterator[Violation]:
    for run_id, history in evidence.histories.items():
        if not history.account.ended:
            steps = {step_id: step.status for step_id, step in history.account.steps.items()}
            yield Violation(
                "every run ends", f"it is {history.account.status or 'not started'}; its steps: {steps}", run_id
            )


def no_impossible_event(evidence: Evidence) -> Iterator[Violation]:
    """No second start, no completion with open steps, no step or execution that nobody ordered, nothing unreadable."""
    for run_id, history in evidence.histories.items():
        for problem in history.account.problems:
            yield Violation("impossible event", problem, run_id)
    for what in evidence.malformed:
        yield Violation("impossible event", what)


def dependencies_first(evidence: Evidence) -> Iterator[Violation]:
    """A step's first start comes after the result of each step that it depends on."""
    for run_id, history in evidence.histories.items():
        for step_id, step in history.account.steps.items():
            for before in history.account.plans[step_id].depends_on:
                done = history.account.steps[before]
                if step.first_seq is not None and (
                    done.status not in DONE or done.done_seq is None or step.first_seq < done.done_seq
                ):
                    yield Violation(
                        "dependencies first",
                        f"step {step_id} began ({step.first_seq}) before {before} was done ({done.done_seq})",
                        run_id,
                    )


def timers_in_time(evidence: Evidence) -> Iterator[Violation]:
    for run_id, history in evidence.histories.items():
        for problem in early_timers(run_id, history.workflow, history.seen, evidence.restored):
            yield Violation("timers in time", problem, run_id)


def failures_have_a_reason(evidence: Evidence) -> Iterator[Violation]:
    """A run fails for what the load meant to go wrong, not for what was done to the service."""
    for run_id, history in evidence.histories.items():
        for seen in history.seen:
            error = (seen.payload or {}).get("error", "") if seen.type in DECIDING else REASONS[0]
            reasons = (*REASONS, *LATE_REASONS) if evidence.restored else REASONS
            if not any(reason in error for reason in reasons):
                yield Violation("failure with a reason", f"it failed: {error}", run_id)
