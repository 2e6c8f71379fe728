"""Assertions about runs. What fails says what was expected and shows the run's history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.testing.history import HistoryEvent
from penstock.testing.run import TestRun

STARTED = "step.started"

_ANY = object()


def assert_completed(run: TestRun, output: Any = _ANY) -> None:
    """The run has completed, with this output."""
    if run.status != "completed":
        _fail(run, f"the run should have completed, it is {run.status}{_why(run)}")
    if output is not _ANY and run.output != output:
        _fail(run, f"the output should be {output!r}, it is {run.output!r}")


def assert_failed(run: TestRun, error: str | None = None, *, step: str | None = None) -> None:
    """The run has failed, with an error that contains this text, at this step."""
    if run.status != "failed":
        _fail(run, f"the run should have failed, it is {run.status}")
    if error is not None and error not in (run.error or ""):
        _fail(run, f"the error should contain {error!r}, it is {run.error!r}")
    if step is not None and run.step(step).status not in ("failed", "recovered"):
        _fail(run, f"step {step!r} should have failed, it is {run.step(step).status}")


def assert_steps(run: TestRun, **statuses: str) -> None:
    """The steps have these statuses: `assert_steps(run, charge="completed", thank="skipped")`."""
    wrong = [
        f"{step_id} should be {wanted}, it is {found}"
        for step_id, wanted in statuses.items()
        if (found := run.step(step_id).status) != wanted
    ]
    if wrong:
        _fail(run, "; ".join(wrong))


def assert_attempts(run: TestRun, step: str, attempts: int) -> None:
    """So many attempts of the step were begun."""
    if (found := run.step(step).attempts) != attempts:
        _fail(run, f"step {step!r} should have begun {attempts} times, it has {found} times")


def assert_happened(run: TestRun, *events: str) -> None:
    """These events are in the history, in this order; others may come between them. An event is its type, with the step
    or the timer that it is about: `step.failed charge`, `timer.fired retry.charge`, `workflow.completed`. An answer
    with `started_at` is a `step.started`, too."""
    left = _happened(run)
    for number, wanted in enumerate(events):
        if not any(wanted in names for _, names in left):
            after = f" after {events[number - 1]!r}" if number else ""
            _fail(run, f"{wanted!r} should have happened{after}")


def assert_absent(run: TestRun, *events: str) -> None:
    """None of these events is in the history."""
    for event, names in _happened(run):
        for unwanted in events:
            if unwanted in names:
                _fail(run, f"{unwanted!r} should not have happened, it is event {event.seq}")


def assert_waits(run: TestRun, step: str) -> None:
    """The run goes on, and the step is queued or running."""
    if run.ended:
        _fail(run, f"the run should wait at step {step!r}, it is {run.status}{_why(run)}")
    if (found := run.step(step).status) not in ("queued", "running"):
        _fail(run, f"the run should wait at step {step!r}, which is {found}")


def _happened(run: TestRun) -> Iterator[tuple[HistoryEvent, tuple[str, ...]]]:
    """The events of the run, in order, each with what assertions call it; of an answer its start before it."""
    for event in run.events:
        if event.started_at is not None:
            yield event, (STARTED, f"{STARTED} {event.step_id}")
        yield event, (event.type, event.about)


def _why(run: TestRun) -> str:
    return f" ({run.error})" if run.error else ""


def _fail(run: TestRun, text: str) -> None:
    __tracebackhide__ = True
    raise AssertionError(f"{text}\nHistory of run {run.id} of {run.workflow}:\n{run.history}")
