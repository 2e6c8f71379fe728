"""Commands: what `advance` orders the shell to do. Every one is safe to do twice."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from penstock.engine.run.events import ApprovalRequest, Event, WorkflowCompleted
from penstock.engine.run.payloads import Value


class DispatchTask(Struct, frozen=True, tag=True):
    """Queue one execution of a step for the workers of its task type (and group), or for the one `worker` its run is
    bound to.

    `or_anyone`: for all of them, too, where that worker has no consumer for the type.
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


class WithdrawTask(Struct, frozen=True, tag=True):
    """The run is over: take its queued tasks of this type (and group) back; those that a worker holds end with its late
    answer."""

    task: str
    group: str | None = None
    worker: str | None = None


class WithdrawSticky(Struct, frozen=True, tag=True):
    """Take this very execution back from the worker it waited for. It comes before the dispatch to everyone."""

    step_id: str
    task: str
    attempt: int
    iteration: int
    worker: str


class BindWorker(Struct, frozen=True, tag=True):
    """Note for people and workers that the run's steps go to this worker from now on."""

    worker_id: str


class RequestApproval(Struct, frozen=True, tag=True):
    """Make a one-time token and append `approval.requested` with it. A second one of the same attempt is ignored by
    `advance`."""

    step_id: str
    attempt: int
    expires: float
    subject: str | None = None
    description: str | None = None
    metadata: dict[str, str] | None = None


class OpenApproval(Struct, frozen=True, tag=True):
    """The request is in the log: keep its token's hash, and publish the request to the definition's subject."""

    step_id: str
    attempt: int
    request: ApprovalRequest


class SetTimer(Struct, frozen=True, tag=True):
    """Append `timer.fired` at `due` (s since the epoch, broker time). A second SetTimer of the same name replaces the
    first."""

    timer: str
    due: float
    step_id: str | None = None
    attempt: int | None = None


class WithdrawTimer(Struct, frozen=True, tag=True):
    """The timer is not needed any more; one that fires all the same is ignored by `advance`."""

    timer: str
    due: float


class DeadLetterTask(Struct, frozen=True, tag=True):
    """Keep a task that failed for good where an operator finds it. Comes before the event that fails its run."""

    step_id: str
    task: str
    attempt: int
    iteration: int
    input: Value
    metadata: dict[str, str]
    error: str
    group: str | None = None


class RemoveDeadLetters(Struct, frozen=True, tag=True):
    """The run goes on at a step that had failed: its dead letters up to this sequence are removed. Later ones belong to
    a later failure."""

    step_id: str
    task: str
    up_to_seq: int


class AppendEvent(Struct, frozen=True, tag=True):
    """Add an event of the engine's own to the run's history."""

    event: Event


class CompleteRun(Struct, frozen=True, tag=True):
    """Add `workflow.completed` to the run's history, with this output once it is put together."""

    event: WorkflowCompleted
    output: Value


Command: TypeAlias = (
    DispatchTask
    | WithdrawTask
    | WithdrawSticky
    | BindWorker
    | SetTimer
    | WithdrawTimer
    | DeadLetterTask
    | RemoveDeadLetters
    | RequestApproval
    | OpenApproval
    | AppendEvent
    | CompleteRun
)
