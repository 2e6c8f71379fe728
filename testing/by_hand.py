"""What an operator does to a run by hand, as events: it goes on where it failed, a step is completed, or its next
attempt begins at once. They are refused where the service refuses them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Conflict, NotFound
from penstock.engine.run.advance import advance
from penstock.engine.run.control.overriding import refusal
from penstock.engine.run.event_payloads import Override, Resumed, TimerRef
from penstock.engine.run.events import Event, Record, StepOverridden, TimerFired, WorkflowResumed
from penstock.engine.run.expansion import expanded
from penstock.engine.run.slots.starting import begun_soon
from penstock.engine.run.state import STEP_DONE, Run, RunStatus, StepState, StepStatus
from penstock.engine.run.timers import TimerKind, step_timers
from penstock.engine.run.workflow import Workflow
from penstock.testing.memory.engine import RunInMemory

OVERRIDE_FORMAT = HOLDS_FORMAT = 2  # of `step.overridden`, and of a resumption that holds a step


def resumption(of: RunInMemory, at: str, dead_letters: int, holds: str | None = None) -> WorkflowResumed:
    """A failed run goes on at the steps that failed, but for the step that it `holds`. Raises Conflict."""
    run = of.known
    if run.status is not RunStatus.FAILED:
        raise Conflict(f"the run is {run.status}, only a failed one can be resumed")
    if run.compensation is not None:
        raise Conflict("the run has undone its steps, so it cannot be resumed")
    failed = tuple(step_id for step_id, step in run.steps.items() if step.status is StepStatus.FAILED)
    slots = of.whole.slots
    waits = 0 if slots is None else len(slots.limits)
    payload = Resumed(steps=failed, dead_letters=dead_letters, holds=holds, waits=waits)
    return WorkflowResumed(run_id=of.run_id, timestamp=at, payload=payload, v=1 if holds is None else HOLDS_FORMAT)


def completion(of: RunInMemory, step_id: str, output: bytes, at: str, dead_letters: int) -> Sequence[Event]:
    """A step is completed with this output; a failed run goes on. Raises NotFound, Conflict for a step that has
    completed or cannot yet be."""
    run, step = of.known, _step(of.known, step_id)
    done = StepOverridden(
        run_id=of.run_id, step_id=step_id, timestamp=at, payload=Override(Raw(output), None), v=OVERRIDE_FORMAT
    )
    if run.status is not RunStatus.FAILED:
        _check(of.whole, run, step_id)
        return [done]
    if step.status in STEP_DONE:
        raise Conflict(f"step {quoted(step_id)} is {step.status}")
    resumed = resumption(of, at, dead_letters, holds=step_id)
    record = Record(run.seq + 1, 0.0, resumed)
    assert of.workflow is not None
    found, _ = advance(of.workflow, run, record)
    assert found is not None
    _check(of.whole, begun_soon(of.workflow, found, record), step_id)
    return [resumed, done]


def early_attempt(of: RunInMemory, step_id: str, at: str) -> TimerFired:
    """The wait of a step for its next attempt ends now. Raises NotFound, Conflict for a step that does not wait."""
    run, step = of.known, _step(of.known, step_id)
    if step.status is not StepStatus.QUEUED or step.due is None or run.failing or run.ended:
        raise Conflict(f"step {quoted(step_id)} does not wait for its next attempt: it is {step.status}")
    timer = next(one for one in step_timers(run, step_id, step) if one.timer.startswith(f"{TimerKind.RETRY}."))
    ref = TimerRef(timer.timer, step_id, timer.attempt, early=True)
    return TimerFired(run_id=of.run_id, timestamp=at, payload=ref)


def _step(run: Run, step_id: str) -> StepState:
    if (found := run.steps.get(step_id)) is None:
        raise NotFound(f"the run has no step {quoted(step_id)}: it has {', '.join(map(quoted, run.steps))}")
    return found


def _check(workflow: Workflow, run: Run, step_id: str) -> None:
    if problem := refusal(expanded(workflow, run), run, step_id):
        raise Conflict(problem)
