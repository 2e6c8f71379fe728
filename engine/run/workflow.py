"""A definition in the form that `advance` uses: durations in seconds, edges in both directions, retry policies
resolved; and the protocol of a kind of step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from penstock.config.limits import RETRY_MULTIPLIER_DEFAULT
from penstock.engine.definition.definitions import SkipIf, Step
from penstock.engine.definition.forms import Document, Form
from penstock.engine.definition.report import Report
from penstock.engine.run.commands import Command
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    Record,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepPaused,
    StepSkipped,
    StepStarted,
)
from penstock.engine.run.state import Run, StepState
from penstock.engine.run.timers import TimerKind

Advance: TypeAlias = tuple[Run, list[Command]]
Ordered: TypeAlias = tuple[StepState, list[Command]]
StepEvent: TypeAlias = (
    StepStarted
    | StepPaused
    | StepCompleted
    | StepFailed
    | StepContinue
    | StepSkipped
    | ApprovalRequested
    | ApprovalGranted
    | ApprovalRejected
    | ApprovalExpired
)


class RetryPolicy(Struct, frozen=True):
    """`retries` after the first execution; delays in seconds."""

    retries: int
    strategy: str = "fixed"
    initial_s: float = 0.0
    max_s: float | None = None
    multiplier: float = RETRY_MULTIPLIER_DEFAULT


NO_RETRY = RetryPolicy(retries=0)


class StepPlan(Struct, frozen=True):
    """One step with the ids of its neighbours; `timeout_s` None means no bound. `config` is the compiled config of its
    kind."""

    id: str
    task: str
    depends_on: tuple[str, ...]
    dependents: tuple[str, ...]
    retry: RetryPolicy
    timeout_s: float | None
    skip_if: SkipIf | None
    metadata: dict[str, str]
    group: str | None
    kind: StepKind
    config: Struct | None = None


class Workflow(Struct, frozen=True):
    """A compiled definition. `digest` identifies the stored definition that it was made from."""

    name: str
    version: str
    digest: str
    steps: Mapping[str, StepPlan]
    roots: tuple[str, ...]
    terminals: tuple[str, ...]
    waiting: dict[str, StepState]
    timeout_s: float | None = None
    sticky: str | None = None


class StepKind(Protocol):
    """The protocol of a kind of step: run/kinds has one class for each.

    `name` is the `type` of its steps. `form` reads their fields, and describes them in the OpenAPI document.
    """

    name: str
    form: Form

    def check(self, label: str, step: Document, report: Report) -> Document:
        """Report problems between fields, after each field was read. Returns the step as it is stored."""

    def compile(self, step: Step, plan: StepPlan) -> StepPlan:
        """The plan of a valid step, made from that of a normal step."""

    def order(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, step: StepState) -> Ordered:
        """Order the execution that `step` (queued, without `due`) describes. Returns the step with what was ordered."""

    def withdraw(self, workflow: Workflow, plan: StepPlan, step: StepState) -> Sequence[Command]:
        """Withdraw what was ordered for a step (queued or running) whose run has ended, except timers."""

    def take_event(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        """Fold one event of the step into the run; `step.skipped` is not among them. An event that does not apply
        changes nothing."""

    def take_timer(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, timer: TimerKind) -> Advance:
        """A timer that is set for the step has fired. The run is not failing."""
