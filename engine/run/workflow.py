"""A definition in the form that `advance` uses: durations in seconds, edges in both directions, retry policies
resolved; and the protocol of a kind of step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Raw, Struct, UnsetType
from msgspec.structs import replace

from penstock.config.limits import RETRY_MULTIPLIER_DEFAULT
from penstock.engine.definition.definitions import Retry, SkipIf, Step
from penstock.engine.definition.forms import Document, Form
from penstock.engine.definition.report import Report
from penstock.engine.expressions.expression import Expression
from penstock.engine.expressions.places import Place
from penstock.engine.expressions.template import Template
from penstock.engine.run.commands import Command
from penstock.engine.run.events import (
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    ChildEnded,
    EventReceived,
    PlannerExpanded,
    Record,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepPaused,
    StepSkipped,
    StepStarted,
)
from penstock.engine.run.slots.plans import SlotsPlan
from penstock.engine.run.state import ITEM_DIGITS_MAX, Run, StepState
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
    | PlannerExpanded
    | ApprovalRequested
    | ApprovalGranted
    | ApprovalRejected
    | ApprovalExpired
    | ChildEnded
    | EventReceived
)


Evaluated: TypeAlias = Mapping[str, Raw]
"""Values of a step's expressions as JSON, by their place in the step (`with`, `config.url`); and `default`, the input
of a step whose kind reads it, and `item`, an element of a map."""


class RetryPolicy(Struct, frozen=True):
    """`retries` after the first execution; delays in seconds."""

    retries: int
    strategy: str = "fixed"
    initial_s: float = 0.0
    max_s: float | None = None
    multiplier: float = RETRY_MULTIPLIER_DEFAULT


NO_RETRY = RetryPolicy(retries=0)

# what the id of an execution ends with that follows from the end of a step
ON_FAILURE, COMPENSATE = "on_failure", "compensate"


class StepPlan(Struct, frozen=True):
    """One step with the ids of its neighbours; `timeout_s` None means no bound. `config` is the compiled config of its
    kind. `expressions` are those to evaluate when the step begins, by their place: `when`, `with`,
    `config.url`; `later` are those that its kind evaluates itself.

    `each` is the plan of a map's elements, `item` the number of such an element. `on_failure` is the plan of what
    follows from the step's failure for good, `compensate` of what undoes the step (of a map, `each` has it); `handles`
    is the id of the step that such a plan is for. `tolerated`: whoever
    the execution is for goes on after its failure.

    Of a step that a planner has inserted, `planner` is the planner's id. `names` are the ids of the steps that it may
    name, by what its fragment calls them, and `labels` are its dependencies by these names. `slots` are those that an
    execution takes before it begins; of a map, `each` has them.
    """

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
    expressions: Mapping[str, Expression | Template] = {}
    later: Mapping[str, Expression | Template] = {}
    each: StepPlan | None = None
    item: int | None = None
    on_failure: StepPlan | None = None
    compensate: StepPlan | None = None
    handles: str | None = None
    tolerated: bool = False
    planner: str | None = None
    names: Mapping[str, str] = {}
    labels: tuple[str, ...] = ()
    slots: SlotsPlan | None = None

    @property
    def evaluates(self) -> bool:
        """Whether something must be evaluated before the step begins."""
        return bool(self.expressions) or self.item is not None or self.handles is not None


def takes_slots(plan: StepPlan) -> bool:
    """Whether executions of the step, or of its elements, take slots."""
    return plan.slots is not None or (plan.each is not None and plan.each.slots is not None)


class FailureRunPlan(Struct, frozen=True):
    """The workflow that a failed run starts a run of; without an `input` with the default one."""

    workflow: str
    input: Template | None = None
    labels: Template | None = None


class Workflow(Struct, frozen=True):
    """A compiled definition. `digest` identifies the stored definition that it was made from.

    In a run whose planners have inserted steps, `steps` has these, too: `base` is the definition without them,
    `fragments` are those of the run, and `lasts` has, for each planner, the last steps of its fragment, by the ids that
    the fragment gave them (expansion.py).

    `slots` are those that a run takes before it begins. `slots_used`: it or one of its steps takes slots.
    """

    name: str
    version: str
    digest: str
    steps: Mapping[str, StepPlan]
    roots: tuple[str, ...]
    terminals: tuple[str, ...]
    waiting: dict[str, StepState]
    timeout_s: float | None = None
    sticky: str | None = None
    default_retry: Retry | None = None
    kinds: Mapping[str, StepKind] = {}
    handler_kinds: Mapping[str, StepKind] = {}
    base: Workflow | None = None
    fragments: Mapping[str, Raw] = {}
    lasts: Mapping[str, Mapping[str, str]] = {}
    on_failure: FailureRunPlan | None = None
    slots: SlotsPlan | None = None
    slots_used: bool = False

    def plan_of(self, step_id: str) -> StepPlan | None:
        """The plan of a step, of an element of a map (`m.7`), of a handler (`a.on_failure`), or of a compensation
        (`a.compensate`, `m.7.compensate`); None: there is no such step."""
        found = self.steps.get(step_id)
        if found is not None:
            return found
        whole_id, _, last = step_id.rpartition(".")
        whole = self.steps.get(whole_id)
        if whole is None and last == COMPENSATE:
            element = self._element(whole_id)
            undoing = None if element is None else element.compensate
            return None if undoing is None else replace(undoing, id=step_id, handles=whole_id)
        if whole is None:
            return None
        if last == ON_FAILURE:
            return whole.on_failure
        return whole.compensate if last == COMPENSATE else _element(whole, step_id, last)

    def _element(self, step_id: str) -> StepPlan | None:
        map_id, _, digits = step_id.rpartition(".")
        whole = self.steps.get(map_id)
        return None if whole is None else _element(whole, step_id, digits)


def _element(whole: StepPlan, step_id: str, digits: str) -> StepPlan | None:
    """The plan of an element of a map; None for a step that is none, and for what is no number."""
    if whole.each is None or not digits.isdecimal() or len(digits) > ITEM_DIGITS_MAX:
        return None
    return replace(whole.each, id=step_id, item=int(digits))


class StepKind(Protocol):
    """The protocol of a kind of step: run/kinds has one class for each.

    `name` is the `type` of the steps. `form` reads their fields, and describes them in the OpenAPI document. `places`
    are the fields that hold expressions. `reads_default`: `begin` gets the step's default input, too, as `default`.
    `reports_error`: the task of a retry has the error of the attempt before. `names_of_limits` are what expressions of
    its limits may name beside `input`, `run` and `steps`.
    """

    name: str
    form: Form
    places: tuple[Place, ...]
    reads_default: bool
    reports_error: bool
    names_of_limits: tuple[str, ...]

    def check(self, label: str, step: Document, report: Report) -> Document:
        """Report problems between fields, after each field was read. Returns the step as it is stored."""

    def compile(self, step: Step, plan: StepPlan) -> StepPlan:
        """The plan of a valid step, made from that of a normal step."""

    def order(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, step: StepState) -> Ordered:
        """Order the execution that `step` (queued, without `due`) describes. Returns the step with what was ordered.
        A step with expressions is ordered by BeginStep."""

    def begin(self, workflow: Workflow, run: Run, plan: StepPlan, at: float, values: Evaluated) -> Sequence[Command]:
        """What begins the execution that BeginStep has ordered at `at`, with the values of its expressions. It may be
        asked again, and answers the same."""

    def held(self, plan: StepPlan, step: StepState, at: float) -> StepState:
        """The step, which could have begun at that time, but its run is paused: a kind that counts from then notes
        it."""

    def done(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, output: Raw | UnsetType) -> Advance:
        """What follows from a step that has completed or was skipped. The run has its new state already."""

    def gave_up(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, error: str) -> Advance:
        """What follows from a step that has failed for good. The run has its new state already."""

    def withdraw(self, workflow: Workflow, plan: StepPlan, step: StepState) -> Sequence[Command]:
        """Withdraw what was ordered for a step (queued or running) whose run has ended, except timers."""

    def take_event(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        """Fold one event of the step into the run; `step.skipped` is not among them. An event that does not apply
        changes nothing."""

    def take_timer(self, workflow: Workflow, run: Run, record: Record, plan: StepPlan, timer: TimerKind) -> Advance:
        """A timer that is set for the step has fired. The run is not failing."""

    def outlives(self, plan: StepPlan) -> bool:
        """Whether a run that undoes its steps waits for such a step, if it is running."""

    def take_late(self, workflow: Workflow, run: Run, record: Record, event: StepEvent, plan: StepPlan) -> Advance:
        """Fold one event of the step into a run that undoes its steps. The step is running, or was cancelled by that
        run; it may still have completed."""
