"""What happens to a step (it enters, starts, is skipped, completes, is retried or fails for good), and what follows for
its run.

Each function takes a run to which its event applies, and returns the new run and the commands that follow.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.definition.durations import text
from penstock.engine.definition.identifiers import problem_with
from penstock.engine.run.commands import AppendEvent, BindWorker, Command, CompleteRun, DeadLetterTask
from penstock.engine.run.event_payloads import NULL, Completed, Failure
from penstock.engine.run.events import Record, StepFailed, StepSkipped, StepStarted, WorkflowCompleted
from penstock.engine.run.execution.compensation import fail
from penstock.engine.run.execution.elements import with_step
from penstock.engine.run.execution.fragments import closed, has_ended
from penstock.engine.run.execution.handlers import enter_handler
from penstock.engine.run.execution.inputs import run_output, skipped_by, skips, step_input
from penstock.engine.run.execution.retry import delay_s, retry_after_s
from penstock.engine.run.payloads import inline_or_ref, size_of, too_large
from penstock.engine.run.state import STEP_DONE, STEP_OUT, Run, StepState, StepStatus
from penstock.engine.run.timers import retimed
from penstock.engine.run.workflow import Advance, StepEvent, StepPlan, Workflow
from penstock.engine.texts import last_part, shortened


def enter(workflow: Workflow, run: Run, step_ids: Iterable[str], record: Record) -> Advance:
    """Order these steps, whose dependencies are done, or skip them. Attempts from before a resumption are still
    counted."""
    steps, commands = dict(run.steps), list[Command]()
    for step_id in step_ids:
        plan = workflow.steps[step_id]
        if skips(run, plan):
            commands.append(_skip(run, record, step_id))
            continue
        before = steps[step_id]
        queued = StepState(
            status=StepStatus.QUEUED,
            attempts=before.attempts + 1,
            base=before.attempts,
            iteration=before.iteration,
            carried=before.carried,
            carried_at=before.carried_at,
            unbegun=before.unbegun,
            items=before.items,
            waits_for=before.waits_for,
        )
        steps[step_id], ordered = plan.kind.order(workflow, run, record, plan, queued)
        commands += ordered
    return replace(run, steps=steps), commands


def _skip(run: Run, record: Record, step_id: str) -> AppendEvent:
    """Append `step.skipped`. In a resumed run it has an attempt number, so that its message id differs from that of an
    earlier skip, which the broker would drop as a duplicate."""
    number = run.resumes + 1 if run.resumes else None
    return AppendEvent(
        StepSkipped(run_id=run.run_id, step_id=step_id, timestamp=record.event.timestamp, attempt_number=number)
    )


def is_current(step: StepState, event: StepEvent) -> bool:
    """Whether the event is about the execution that is out now; without any number it means that one.

    While a step waits for its retry none is out: whatever comes then is late. An attempt without an iteration means the
    first iteration, for writers leave out a zero.
    """
    waits = step.status is StepStatus.QUEUED and step.due is not None
    if step.status not in STEP_OUT or waits:
        return False
    if event.attempt_number is None:
        return event.iteration in (None, step.iteration)
    return (event.attempt_number, event.iteration or 0) == (step.attempts, step.iteration)


def started(run: Run, record: Record, event: StepStarted, plan: StepPlan, until: float | None) -> Advance:
    """A worker has begun the queued task; `until` is the deadline of a loop."""
    before = run.step(plan.id)
    step = replace(
        before,
        status=StepStatus.RUNNING,
        started_at=event.timestamp,
        worker_id=event.worker_id,
        delivery=event.delivery,
        due=None if plan.timeout_s is None else record.at + plan.timeout_s,
        until=until,
        fallback=None,
    )
    return with_step(run, record, plan.id, step), retimed(run, plan.id, before, step)


def skipped(workflow: Workflow, run: Run, record: Record, plan: StepPlan) -> Advance:
    step = StepState(status=StepStatus.SKIPPED, finished_at=record.event.timestamp)
    timers = retimed(run, plan.id, run.step(plan.id), step)
    run, following = go_on(workflow, with_step(run, record, plan.id, step), record, plan.id)
    return run, timers + following


def completed(
    workflow: Workflow, run: Run, record: Record, plan: StepPlan, output: Raw | UnsetType, worker_id: str | None = None
) -> Advance:
    before = run.step(plan.id)
    if problem := too_large("the output", output):
        return fail_for_good(workflow, run, record, plan, problem)
    kept, output_at = inline_or_ref(output, record.seq)
    step = replace(
        before,
        status=StepStatus.COMPLETED,
        output=kept,
        output_at=output_at,
        skips=() if output_at is None or isinstance(output, UnsetType) else skipped_by(workflow, plan, output),
        error=None,
        traceback=None,
        finished_at=record.event.timestamp,
        worker_id=worker_id or before.worker_id,
        left=None,
        due=None,
        until=None,
        fallback=None,
        wake_at=None,
        completed_seq=0 if plan.compensate is None else record.seq,
    )
    commands = retimed(run, plan.id, before, step)
    run = with_step(run, record, plan.id, step)
    run, binding = bound_by(workflow, run, plan, worker_id)
    commands += binding
    run, following = plan.kind.done(workflow, run, record, plan, output)
    return run, commands + following


def bound_by(workflow: Workflow, run: Run, plan: StepPlan, worker_id: str | None) -> Advance:
    """The worker that answers first is the one that a sticky run goes on with."""
    if not workflow.sticky or run.bound is not None or problem_with("worker id", worker_id) is not None:
        return run, []
    assert worker_id is not None
    return replace(run, bound=worker_id, bound_group=plan.group), [BindWorker(worker_id)]


def failed(workflow: Workflow, run: Run, record: Record, event: StepFailed, plan: StepPlan) -> Advance:
    """Retry the step if its policy allows it, else fail it for good."""
    before, failure = run.step(plan.id), event.payload
    tries = before.attempts - before.base
    if failure.failure_type == "non_retriable" or tries > plan.retry.retries or run.failing:
        return fail_for_good(workflow, run, record, plan, failure.error, failure.traceback)
    wait_s = _wait_s(run, plan, failure, tries)
    step = replace(
        before,
        status=StepStatus.QUEUED,
        attempts=before.attempts + 1,
        error=shortened(failure.error),
        traceback=last_part(failure.traceback) or None,
        left=None,
        pauses=0,
        delivery=1,
        due=record.at + wait_s if wait_s > 0 else None,
        sticky=None,
        fallback=None,
    )
    commands = retimed(run, plan.id, before, step)
    if step.due is None:
        step, ordered = plan.kind.order(workflow, run, record, plan, step)
        commands += ordered
    return with_step(run, record, plan.id, step), commands


def fail_for_good(
    workflow: Workflow,
    run: Run,
    record: Record,
    plan: StepPlan,
    error: str,
    traceback: str = "",
    *,
    dead_letter: bool = True,
) -> Advance:
    """The step has failed for good. The dead letter is ordered before the event that fails the run."""
    before, error = run.step(plan.id), shortened(error)
    step = replace(
        before,
        status=StepStatus.FAILED,
        error=error,
        traceback=last_part(traceback) or None,
        finished_at=record.event.timestamp,
        left=None,
        due=None,
        until=None,
        fallback=None,
        wake_at=None,
    )
    commands = retimed(run, plan.id, before, step)
    if dead_letter and not _is_provided_for(workflow, run, plan):
        commands.append(dead_lettered(run, plan, before, error))
    after = with_step(run, record, plan.id, step)
    if run.failing:
        return after, commands
    if plan.on_failure is not None:
        after, ordered = enter_handler(workflow, after, record, plan.on_failure)
        return after, commands + ordered
    after, following = plan.kind.gave_up(workflow, after, record, plan, error)
    return after, [*commands, *following]


def timed_out(run: Run, record: Record, plan: StepPlan, step: StepState) -> AppendEvent:
    """Append that the attempt has taken too long."""
    late = StepFailed(
        run_id=run.run_id,
        step_id=plan.id,
        timestamp=record.event.timestamp,
        attempt_number=step.attempts,
        iteration=step.iteration or None,
        item=plan.item,
        payload=Failure(error=took_too_long(plan)),
    )
    return AppendEvent(late)


def took_too_long(plan: StepPlan) -> str:
    return f"step timeout exceeded ({text(plan.timeout_s or 0)})"


def _is_provided_for(workflow: Workflow, run: Run, plan: StepPlan) -> bool:
    """Whether the definition says what follows from the failure, so that it leaves no dead letter."""
    whole = plan if plan.item is None else workflow.steps[plan.id.rpartition(".")[0]]
    return plan.tolerated or (whole.on_failure is not None and not run.failing)


def recovered(workflow: Workflow, run: Run, record: Record, plan: StepPlan, output: Raw | UnsetType) -> Advance:
    """The handler of a failed step has completed: its output is the step's, and the run goes on."""
    given = NULL if isinstance(output, UnsetType) else output
    kept, output_at = inline_or_ref(given, record.seq)
    step = replace(
        run.steps[plan.id],
        status=StepStatus.RECOVERED,
        output=kept,
        output_at=output_at,
        skips=() if output_at is None else skipped_by(workflow, plan, given),
        finished_at=record.event.timestamp,
    )
    return go_on(workflow, with_step(run, record, plan.id, step), record, plan.id)


def dead_lettered(run: Run, plan: StepPlan, step: StepState, error: str) -> DeadLetterTask:
    """Store the execution, which has failed for good, as a dead letter."""
    value = NULL if plan.evaluates else step_input(run, plan, step)
    return DeadLetterTask(
        plan.id,
        plan.task,
        step.attempts,
        step.iteration,
        value,
        plan.metadata,
        error,
        plan.group,
        evaluate=plan.evaluates,
    )


def fail_with(workflow: Workflow, run: Run, record: Record, step_id: str, error: str) -> Advance:
    """The run fails because a step of it has failed for good."""
    return fail(workflow, run, record, shortened(f'step "{step_id}" failed: {error}'), step_id)


def complete_run(workflow: Workflow, run: Run, record: Record) -> AppendEvent | CompleteRun:
    """Order the end of the run with its output. Of an output that is too large for an event only the size is given: the
    events of the steps have it."""
    output = run_output(workflow, run)
    if isinstance(output, Raw):
        return AppendEvent(_completion(run, record, Completed(output=output, resumes=run.resumes)))
    size = size_of(output)
    if size > PAYLOAD_BYTES_MAX:
        return AppendEvent(_completion(run, record, Completed(output_bytes=size, resumes=run.resumes)))
    return CompleteRun(_completion(run, record, Completed(resumes=run.resumes)), output)


def _completion(run: Run, record: Record, payload: Completed) -> WorkflowCompleted:
    return WorkflowCompleted(run_id=run.run_id, timestamp=record.event.timestamp, payload=payload)


def go_on(workflow: Workflow, run: Run, record: Record, done: str, output: Raw | UnsetType = UNSET) -> Advance:
    """What follows when a step is done: its dependents are ordered, or the run ends; or the fragment that it is in, and
    what follows from that. `output` is the step's."""
    within = workflow.steps[done].planner
    if within is not None and has_ended(workflow, run, within):
        planner = workflow.steps[within]
        return planner.kind.done(workflow, closed(workflow, run, record, planner, output), record, planner, output)
    if run.failing:
        return run, []
    ready = [step_id for step_id in workflow.steps[done].dependents if is_ready(run, workflow.steps[step_id])]
    if ready:
        return enter(workflow, run, ready, record)
    return run, [complete_run(workflow, run, record)] if all_done(workflow, run) else []


def is_ready(run: Run, plan: StepPlan) -> bool:
    """Whether all dependencies of the step are done.

    The last dependency is checked first: steps mostly end in the order in which they began, so a step that depends on
    10,000 others does not check all of them after each of their ends.
    """
    for step_id in reversed(plan.depends_on):  # noqa: SIM110 - asked after each step: a generator takes three times as long
        if run.steps[step_id].status not in STEP_DONE:
            return False
    return True


def all_done(workflow: Workflow, run: Run) -> bool:
    """Whether all steps are done, so that the run is complete: its terminal steps, which end last, are."""
    for step_id in reversed(workflow.terminals):  # noqa: SIM110 - as above
        if run.steps[step_id].status not in STEP_DONE:
            return False
    return True


def _wait_s(run: Run, plan: StepPlan, failure: Failure, tries: int) -> float:
    return (
        retry_after_s(failure)
        if failure.failure_type == "retry_after"
        else delay_s(plan.retry, run.run_id, plan.id, tries)
    )
