"""Commands: what `advance` orders the shell to do. Every one is safe to do twice."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Raw, Struct

from penstock.engine.run.event_payloads import ApprovalRequest, EventWait
from penstock.engine.run.events import Event, WorkflowCompleted
from penstock.engine.run.payloads import Value


class DispatchTask(Struct, frozen=True, tag=True):
    """Queue one execution of a step for the workers of its task type (and group), or for the one `worker` that its run
    is bound to.

    With `or_anyone`, it is queued for all workers if that worker has no consumer for the type. `again`: the run goes on
    after so many pauses, and the task is queued unless it is in its queue.
    """

    step_id: str
    task: str
    attempt: int
    iteration: int
    input: Value
    metadata: dict[str, str]
    group: str | None = None
    worker: str | None = None
    step_type: str = "normal"
    or_anyone: bool = False
    item: int | None = None
    previous_error: str | None = None
    again: int = 0


class BeginStep(Struct, frozen=True, tag=True):
    """Evaluate the expressions of a step, then do what begins this execution of it (beginning.py says what).

    `at` is when it was ordered (s since the epoch, broker time), for what counts from then. `again` as in DispatchTask.
    """

    step_id: str
    attempt: int
    iteration: int
    at: float
    again: int = 0


class StartChild(Struct, frozen=True, tag=True):
    """Start a run of `workflow` (its newest version without one) for this attempt of the step, and append
    `step.started` with its id; or `step.failed`, if it cannot start. `at` as in BeginStep. `under`: as in its
    `workflow.started`."""

    step_id: str
    attempt: int
    workflow: str
    version: str | None
    input: Raw
    at: float
    detached: bool = False
    item: int | None = None
    labels: dict[str, str] | None = None
    under: tuple[str, ...] = ()


class StartFailureRun(Struct, frozen=True, tag=True):
    """The run has failed for the `resumes`-th time, counted from 0: start the run that its workflow wants then."""

    error: str
    failed_step: str | None
    resumes: int
    at: float


class CancelChild(Struct, frozen=True, tag=True):
    """Cancel the run that this attempt of the step has started. If it has not, it never will. With `compensate` it
    undoes its steps first."""

    step_id: str
    attempt: int
    reason: str
    compensate: bool = True


class TakeOver(Struct, frozen=True, tag=True):
    """Copy what the run is still to take over (`Run.taking`) from the history of the run that it repeats, and append
    `step.taken_over` for each step."""


class CancelTask(Struct, frozen=True, tag=True):
    """Notify the worker that began this execution that its result is not wanted any more. Nothing is stored of it: a
    worker that misses it learns it at its next sign of life.

    `begun` is the sequence of the `step.started` that names the worker, where `worker_id` is None.
    """

    step_id: str
    attempt: int
    iteration: int
    worker_id: str | None
    begun: int = 0
    reason: str = ""


class PauseChild(Struct, frozen=True, tag=True):
    """The run is paused with its children, or goes on with them (`pause` is false), by event `seq`: the same for the
    run that this attempt of the step has started."""

    step_id: str
    attempt: int
    pause: bool
    seq: int


class ExpandPlan(Struct, frozen=True, tag=True):
    """Check the plan that a planner's worker has returned, and append `planner.expanded` with its steps, or
    `step.failed` with every problem.

    `at` is when the plan was stored (s since the epoch, broker time).
    """

    step_id: str
    attempt: int
    at: float


class WithdrawTask(Struct, frozen=True, tag=True):
    """The run has ended: withdraw its queued tasks of this type (and group). A task that a worker holds ends with the
    worker's late report. `of_step`: the run may go on, and only the tasks of this step, or its elements, go."""

    task: str
    group: str | None = None
    worker: str | None = None
    of_step: str | None = None


class WithdrawQueued(Struct, frozen=True, tag=True):
    """The run is paused: withdraw its tasks of this type (and group, or of this worker) that no worker has taken. The
    tasks of executions that run stay."""

    task: str
    group: str | None = None
    worker: str | None = None


class WithdrawSticky(Struct, frozen=True, tag=True):
    """Withdraw this execution from the worker that it waited for. This command precedes the dispatch to all workers."""

    step_id: str
    task: str
    attempt: int
    iteration: int
    worker: str


class BindWorker(Struct, frozen=True, tag=True):
    """Record that the run's steps go to this worker from now on, for people and for workers."""

    worker_id: str


class RequestApproval(Struct, frozen=True, tag=True):
    """Make a one-time token and append `approval.requested` with it. `advance` ignores a second request of the same
    attempt."""

    step_id: str
    attempt: int
    expires: float
    subject: str | None = None
    description: str | None = None
    metadata: dict[str, str] | None = None


class OpenApproval(Struct, frozen=True, tag=True):
    """The request is in the log: store the hash of its token, and publish the request to the subject in the
    definition."""

    step_id: str
    attempt: int
    request: ApprovalRequest


class AwaitEvent(Struct, frozen=True, tag=True):
    """Look for the first event that ends the wait, among those that are stored already and those to come, and append
    `event.received` with it. Without one until its deadline append `timer.fired` with the timer `wait.<step>`."""

    step_id: str
    attempt: int
    wait: EventWait


class StopWaiting(Struct, frozen=True, tag=True):
    """The step does not wait any more. If an event is found nevertheless, `advance` ignores it."""

    step_id: str
    attempt: int


class SetTimer(Struct, frozen=True, tag=True):
    """Append `timer.fired` at `due` (s since the epoch, broker time). A second SetTimer of the same name replaces the
    first."""

    timer: str
    due: float
    step_id: str | None = None
    attempt: int | None = None


class WithdrawTimer(Struct, frozen=True, tag=True):
    """The timer is not needed any more. If it fires nevertheless, `advance` ignores it."""

    timer: str
    due: float


class DeadLetterTask(Struct, frozen=True, tag=True):
    """Store a task that failed for good as a dead letter. This command precedes the event that fails its run."""

    step_id: str
    task: str
    attempt: int
    iteration: int
    input: Value
    metadata: dict[str, str]
    error: str
    group: str | None = None
    evaluate: bool = False


class RemoveDeadLetters(Struct, frozen=True, tag=True):
    """The run continues at a step that had failed: remove the step's dead letters up to this sequence. Later ones
    belong to a later failure."""

    step_id: str
    task: str
    up_to_seq: int


class RequestSlot(Struct, frozen=True, tag=True):
    """Ask for a slot for `holder`: of the limit with this number among those of the step (of the workflow, where
    `step_id` is None). Its key, priority and fair value are evaluated for that; where they cannot be, the step or the
    run fails. A step whose condition does not hold is skipped instead. `at` as in BeginStep."""

    holder: str
    number: int
    at: float
    step_id: str | None = None
    attempt: int = 0
    iteration: int = 0


class ReleaseSlot(Struct, frozen=True, tag=True):
    """`holder` does not hold, or want, the slot any more. `limit_id` None: it was asked for and is not granted yet, so
    that the limit is to be found as RequestSlot finds it."""

    holder: str
    why: str
    limit_id: str | None = None
    number: int = 0
    step_id: str | None = None
    attempt: int = 0
    iteration: int = 0


class AppendEvent(Struct, frozen=True, tag=True):
    """Append an event of the engine's own to the run's history."""

    event: Event


class CompleteRun(Struct, frozen=True, tag=True):
    """Append `workflow.completed` to the run's history, with this output."""

    event: WorkflowCompleted
    output: Value


Command: TypeAlias = (
    DispatchTask
    | BeginStep
    | StartChild
    | StartFailureRun
    | CancelChild
    | TakeOver
    | CancelTask
    | PauseChild
    | ExpandPlan
    | WithdrawTask
    | WithdrawQueued
    | WithdrawSticky
    | BindWorker
    | SetTimer
    | WithdrawTimer
    | DeadLetterTask
    | RemoveDeadLetters
    | RequestApproval
    | OpenApproval
    | AwaitEvent
    | StopWaiting
    | RequestSlot
    | ReleaseSlot
    | AppendEvent
    | CompleteRun
)


def is_within(execution: str, step_id: str) -> bool:
    """Whether an execution with this id is one of the step, or of an element of it: `m` or `m.7` of `m`."""
    whole, _, number = execution.rpartition(".")
    return execution == step_id or (whole == step_id and number.isdecimal())
