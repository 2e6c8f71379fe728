"""A run's state: the fold of its history, and the format of its snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.engine import formats
from penstock.engine.run.event_payloads import NULL, EventWait, ParentRef, Taking, TriggerRef
from penstock.engine.run.holds import Resuming, RunPause, SlotState
from penstock.engine.run.items import Items, ItemStatus
from penstock.engine.run.payloads import PayloadRef

# `v` of snapshots (formats.py): raised when older versions would misread a snapshot
SNAPSHOT_FORMAT = 1
PAUSED_FORMAT = 2  # of a run that is paused, or was
LIMITS_FORMAT = 3  # of a run that has to do with limits
LIMIT_FIELDS = (b'"concurrency":', b'"rate_limit":', b'"priority":')


class RunStatus(StrEnum):
    SCHEDULED = "scheduled"
    PENDING = "pending"
    RUNNING = "running"
    COMPENSATING = "compensating"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepStatus(StrEnum):
    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    RECOVERED = "recovered"


RUN_MOVES: Mapping[RunStatus, frozenset[RunStatus]] = {
    RunStatus.SCHEDULED: frozenset({RunStatus.PENDING, RunStatus.RUNNING, RunStatus.CANCELLED}),
    RunStatus.PENDING: frozenset({RunStatus.RUNNING, RunStatus.FAILED, RunStatus.CANCELLED}),
    RunStatus.RUNNING: frozenset({RunStatus.COMPENSATING, RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED}),
    RunStatus.COMPENSATING: frozenset({RunStatus.FAILED, RunStatus.CANCELLED}),
    RunStatus.COMPLETED: frozenset(),
    RunStatus.FAILED: frozenset({RunStatus.PENDING, RunStatus.RUNNING}),
    RunStatus.CANCELLED: frozenset(),
}

STEP_MOVES: Mapping[StepStatus, frozenset[StepStatus]] = {
    # by hand, or taken over by a rerun: what is done, and a planner of which some steps are
    StepStatus.PENDING: frozenset(
        {
            StepStatus.QUEUED,
            StepStatus.SKIPPED,
            StepStatus.CANCELLED,
            StepStatus.COMPLETED,
            StepStatus.RECOVERED,
            StepStatus.RUNNING,
        }
    ),
    StepStatus.QUEUED: frozenset(
        {
            StepStatus.RUNNING,
            StepStatus.QUEUED,
            StepStatus.COMPLETED,
            StepStatus.FAILED,
            StepStatus.SKIPPED,
            StepStatus.CANCELLED,
        }
    ),
    StepStatus.RUNNING: frozenset({StepStatus.QUEUED, StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.CANCELLED}),
    StepStatus.COMPLETED: frozenset(),
    # pending: what is completed by hand next, in a run that goes on
    StepStatus.FAILED: frozenset(
        {
            StepStatus.PENDING,
            StepStatus.QUEUED,
            StepStatus.RECOVERED,
            StepStatus.CANCELLED,
            StepStatus.COMPLETED,
        }
    ),
    StepStatus.SKIPPED: frozenset(),
    StepStatus.CANCELLED: frozenset({StepStatus.PENDING, StepStatus.QUEUED, StepStatus.RUNNING, StepStatus.COMPLETED}),
    StepStatus.RECOVERED: frozenset(),
}

# What the status of an element is as that of a step.
ITEM_STEP = {
    ItemStatus.WAITING: StepStatus.PENDING,
    ItemStatus.QUEUED: StepStatus.QUEUED,
    ItemStatus.RUNNING: StepStatus.RUNNING,
    ItemStatus.COMPLETED: StepStatus.COMPLETED,
    ItemStatus.FAILED: StepStatus.FAILED,
    ItemStatus.CANCELLED: StepStatus.CANCELLED,
}
STEP_ITEM = {status: item for item, status in ITEM_STEP.items()}
ITEM_DIGITS_MAX = 5
CACHED = 1024  # ids and states of elements: an event looks for its element several times

RUN_ENDED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
RUN_OPEN = frozenset({RunStatus.RUNNING, RunStatus.COMPENSATING})
STEP_OUT = frozenset({StepStatus.QUEUED, StepStatus.RUNNING})
STEP_DONE = frozenset({StepStatus.COMPLETED, StepStatus.SKIPPED, StepStatus.RECOVERED})
STEP_ENDED = STEP_DONE | {StepStatus.FAILED, StepStatus.CANCELLED}


class StepState(Struct, frozen=True, omit_defaults=True, gc=False):
    """The state of one step of any kind.

    The struct is flat because older and newer versions read the same snapshots: a struct for each kind would be
    converted from and to this form for each snapshot. `attempts` counts dispatched executions (of this iteration) from
    1; `due` is the step's current deadline or the time of its retry. `base` is the number of attempts before the run
    was resumed: they do not count as retries. `unbegun` is how many of those, and of the last one
    of a step that was completed by hand, no worker had begun. `carried` is the
    input of a loop's later iterations, `until` the loop's deadline. `traceback` belongs to `error`. `sticky` is the
    worker that a dispatched task waits for, `fallback` the time when that wait ends. `token` is the SHA-256 of an
    approval's token. Times are s since the epoch.

    `left` is what remains of the timeout, in s, while the worker has put the task aside; `pauses` counts how often it
    did. `delivery` is the delivery of its task that was begun last; 0 when none was begun yet of a task that replaces
    another.

    `wake_at` is when a step that sleeps goes on. `child_run_id` is the run that the last attempt of a sub_workflow has
    started. `waits_for` is the event that a step waits for, or waited for until it failed; `received` is the sequence
    of the one that completed it. `items` are the elements of a map, and
    `item_states` those of them that have more to remember than an Element can. `handles` is the step from whose end
    this one follows; it is not in the definition's graph.

    `parts` are the last steps of a planner's fragment, by the ids that the fragment gave them, if their outputs are too
    large to be copied: the planner's output is made of theirs.

    An output that is too large for a state has its place in `output_at`, and so has `carried` in `carried_at`; `skips`
    are then the dependents that such an output has skipped. `completed_seq` is the sequence of the event that completed
    a step that can be undone. `overridden`: somebody has completed the step by hand.
    """

    status: StepStatus = StepStatus.PENDING
    attempts: int = 0
    output: Raw | UnsetType = UNSET
    error: str | None = None
    iteration: int = 0
    started_at: str | None = None
    finished_at: str | None = None
    worker_id: str | None = None
    due: float | None = None
    base: int = 0
    carried: Raw | UnsetType = UNSET
    until: float | None = None
    sticky: str | None = None
    fallback: float | None = None
    token: str | None = None
    output_at: PayloadRef | None = None
    carried_at: PayloadRef | None = None
    skips: tuple[str, ...] = ()
    traceback: str | None = None
    unbegun: int = 0
    left: float | None = None
    pauses: int = 0
    delivery: int = 1
    wake_at: float | None = None
    items: Items | None = None
    item_states: dict[int, StepState] = {}
    child_run_id: str | None = None
    handles: str | None = None
    waits_for: EventWait | None = None
    received: int | None = None
    parts: dict[str, str] = {}
    completed_seq: int = 0
    overridden: bool = False

    WAITING: ClassVar[StepState]

    @property
    def begun(self) -> int:
        """How many attempts a worker has begun: not the attempt that waits, nor one that was cancelled before its
        start."""
        return self.attempts - self.unbegun - (self.status is StepStatus.QUEUED or self.ended_in_queue)

    @property
    def ended_in_queue(self) -> bool:
        """Whether the run ended before any worker had begun the last attempt."""
        return (
            self.status is StepStatus.CANCELLED
            and self.attempts > self.base
            and self.started_at is None
            and self.error is None
        )


class Compensation(Struct, frozen=True, omit_defaults=True):
    """How far a run is that undoes its steps, and then ends as `ends`.

    `todo` are the steps, and elements of maps, that are still to be undone, the next one last; `undoing` is the one
    that is being undone. `awaited` counts steps and elements that were running, and may still complete.
    `incomplete`: something could not be undone. `outcome`, completed or failed: the end is ordered. `failed_step` is
    the step with which the run has failed. `announced`: the log says that the run undoes its steps.
    """

    ends: RunStatus
    failed_step: str | None = None
    todo: tuple[str, ...] = ()
    undoing: str | None = None
    awaited: int = 0
    incomplete: bool = False
    outcome: str | None = None
    announced: bool = False


class Run(Struct, frozen=True, omit_defaults=True, gc=False):
    """One execution of a workflow. `seq` is the stream sequence of the last event folded in, `due` the workflow's
    deadline.

    `resumes` counts how often it was resumed after a failure; `bound` is the worker that executes the steps of a sticky
    run, for those of `bound_group`: the group of the step that bound it. An input that is too large for the state has a
    reference in `input_at`; `input` is null then. `failure_of` is the run whose failure has started this one. `labels`
    are texts by names, by which people find the run.

    `fragments` are the steps that planners have inserted, as JSON, in the order of their insertion. `compensation` is
    there from when the run begins to undo its steps. `rerun_of` is the run that this one repeats, from the step
    `rerun_from` on; `taking` is what it has still to take over before it begins. `pause` is there while the run is
    paused, `pauses` counts how often it was. `removed`: the run is not there any more, for whoever asks. `imported` is
    the id of the document from which somebody reads an imported run; no fold sets it.

    `slots` are those of limits that the run (by the empty text) and its executions (by their ids) have or wait for.
    `under` are the ids of limits of which an ancestor holds a slot. `resuming`: the run goes on when it has its slots.
    """

    run_id: str
    workflow_id: str
    version: str
    digest: str
    status: RunStatus
    created_at: str
    seq: int
    input: Raw = NULL
    steps: dict[str, StepState] = {}
    error: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    run_at: str | None = None
    parent: ParentRef | str | None = None
    rerun_of: str | None = None
    trigger: TriggerRef | None = None
    due: float | None = None
    resumes: int = 0
    bound: str | None = None
    bound_group: str | None = None
    trace_parent: str | None = None
    input_at: PayloadRef | None = None
    fragments: dict[str, Raw] = {}
    failure_of: str | None = None
    compensation: Compensation | None = None
    labels: dict[str, str] | None = None
    rerun_from: str | None = None
    taking: Taking | None = None
    pause: RunPause | None = None
    pauses: int = 0
    removed: bool = False
    imported: str | None = None
    slots: dict[str, SlotState] = {}
    under: tuple[str, ...] = ()
    resuming: Resuming | None = None

    @property
    def ended(self) -> bool:
        return self.status in RUN_ENDED

    def step(self, step_id: str) -> StepState:
        """The state of a step, or of an element of a map (`m.7`). Raises KeyError."""
        found = self.find(step_id)
        if found is None:
            raise KeyError(step_id)
        return found

    def find(self, step_id: str) -> StepState | None:
        """As `step`; None where there is no such step or element."""
        found = self.steps.get(step_id)
        if found is not None:
            return found
        place = _place(step_id)
        step = None if place is None else self.steps.get(place[0])
        if place is None or step is None or step.items is None or place[1] >= step.items.total:
            return None
        return _view(step, step.items, place[1])

    def element(self, step_id: str) -> tuple[str, int] | None:
        """The map and the number that the id of an element names (`m.7`: m and 7); None for any other id."""
        place = _place(step_id)
        if place is None:
            return None
        step = self.steps.get(place[0])
        return place if step is not None and step.items is not None and place[1] < step.items.total else None

    def steps_and_items(self) -> Iterator[tuple[str, StepState]]:
        """Every step, and the elements of maps that have more to remember than an Element can: those that are bound to
        a worker, above all."""
        for step_id, step in self.steps.items():
            yield step_id, step
            yield from ((f"{step_id}.{number}", state) for number, state in step.item_states.items())

    @property
    def failing(self) -> bool:
        """Whether the run is going to fail: `workflow.failed` is ordered but not yet folded in, and no step begins any
        more."""
        return self.error is not None and self.status is RunStatus.RUNNING


def _view(step: StepState, items: Items, number: int) -> StepState:
    """An element as if it were a step."""
    if number in step.item_states:
        return step.item_states[number]
    element = items.get(number)
    return state_of(element.status, element.attempts, element.base, element.due)


@lru_cache(CACHED)
def state_of(status: ItemStatus, attempts: int, base: int, due: float) -> StepState:
    """The state that an Element stands for."""
    return StepState(status=ITEM_STEP[status], attempts=attempts, base=base, due=due or None)


@lru_cache(CACHED)
def _place(step_id: str) -> tuple[str, int] | None:
    """The parts of an id that may be an element's, as text that nobody but the service writes: without leading zeros,
    in ASCII digits."""
    map_id, _, digits = step_id.rpartition(".")
    if not (digits.isdecimal() and digits.isascii()) or len(digits) > ITEM_DIGITS_MAX:
        return None
    return None if digits[0] == "0" and digits != "0" else (map_id, int(digits))


class RunHead(Struct, frozen=True):
    """The fields of a snapshot that lists need."""

    workflow_id: str
    status: RunStatus
    created_at: str
    seq: int
    rerun_of: str | None = None
    parent: ParentRef | str | None = None
    trigger: TriggerRef | None = None
    labels: dict[str, str] | None = None
    pause: RunPause | None = None


StepState.WAITING = StepState()

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Run)
_HEAD = msgspec.json.Decoder(RunHead)


def to_snapshot(run: Run) -> bytes:
    """Encode the run as one JSON object for `from_snapshot`."""
    return formats.stamped(_ENCODER.encode(run), _format(run))


def _format(run: Run) -> int:
    if run.slots or run.under or run.resuming is not None or any(map(_may_have_limits, run.fragments.values())):
        return LIMITS_FORMAT
    return PAUSED_FORMAT if run.pauses else SNAPSHOT_FORMAT


def _may_have_limits(fragment: Raw) -> bool:
    """Whether a planner may have inserted steps with limits; a text may read the same, which costs nothing."""
    body = bytes(fragment)
    return any(field in body for field in LIMIT_FIELDS)


def from_snapshot(body: bytes) -> Run:
    """Decode a snapshot. Payloads are views into `body`, which they hold in memory.

    Raises msgspec.ValidationError when `body` is not a snapshot, NeedsUpgrade when a newer version wrote it.
    """
    if body.startswith(b'{"v":'):
        formats.check(body)
    return _DECODER.decode(body)


def head_of(body: bytes) -> RunHead:
    """Decode the head of a snapshot without its steps. Raises as `from_snapshot`."""
    if body.startswith(b'{"v":'):
        formats.check(body)
    return _HEAD.decode(body)
