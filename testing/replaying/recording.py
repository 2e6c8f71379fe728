"""A recorded run: its definition, its events, and which of them came from outside of its engine."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import orjson
from msgspec import Raw, Struct

from penstock.engine.errors import Invalid
from penstock.engine.run.advance import advance
from penstock.engine.run.event_payloads import StepFacts
from penstock.engine.run.events import (
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    ChildEnded,
    Event,
    EventReceived,
    LimitGranted,
    LimitRefused,
    Malformed,
    Record,
    SignalReceived,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepOverridden,
    StepPaused,
    StepStarted,
    StepTakenOver,
    TimerFired,
    WorkflowCancelled,
    WorkflowPaused,
    WorkflowRemoved,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
    WorkflowUnpaused,
    decode,
    event_type,
)
from penstock.engine.run.state import Run, StepState
from penstock.engine.times import instant, rfc3339
from penstock.testing.memory.catalog import CatalogInMemory
from penstock.testing.memory.tasks import ExecutionKey

Export: TypeAlias = Mapping[str, Any] | str | bytes | Path
"""What `penstock run export` prints: a dict, JSON, or the path of a file."""
AttemptKey: TypeAlias = tuple[str, int]
StepEvent: TypeAlias = (
    StepStarted | StepPaused | StepCompleted | StepFailed | StepContinue
    | ApprovalRequested | ApprovalGranted | ApprovalRejected | EventReceived | ChildEnded
)  # fmt: skip
APART_S = 1e-6
TOO_LONG = "step timeout exceeded ("  # so the engine says it
BY_OTHERS = (SignalReceived, StepOverridden, WorkflowPaused, WorkflowRemoved, WorkflowResumed, WorkflowUnpaused)


class _ExportedRun(Struct):
    run_id: str
    definition: Raw
    events: list[Raw]


class _StoredEvent(Struct):
    seq: int
    stored_at: str


class Recording:
    """One run, as its log had it: `run` is what it came to. `begins` are the events that begin it, `outside` what other
    programs and people did to it, in the order of the log. No two events have the same time."""

    def __init__(self, run_id: str, definition: bytes, records: list[Record]) -> None:
        self.run_id, self.definition, self.records = run_id, definition, _one_after_the_other(records)
        self.workflow = CatalogInMemory().register(definition).workflow
        self.run: Run | None = None
        self.begins: list[Record] = []
        self.outside: list[Record] = []
        self.taken_over: list[Record] = []
        self._executions: defaultdict[ExecutionKey, list[Record]] = defaultdict(list)
        self._decided: dict[AttemptKey, Record] = {}
        self._received: dict[AttemptKey, Record] = {}
        self._children: dict[AttemptKey, Record] = {}
        self._asked: dict[AttemptKey, ApprovalRequested] = {}
        self._slots: defaultdict[str, deque[Record]] = defaultdict(deque)
        self._own: defaultdict[tuple[str, str, int], deque[float]] = defaultdict(deque)
        self._fired: dict[tuple[str, str], float] = {}
        for record in self.records:
            self._sort(record)
            self.run, _ = advance(self.workflow, self.run, record)
        if not self.begins:
            raise Invalid(f"run {run_id} has no event that begins it")

    def of_execution(self, key: ExecutionKey) -> list[Record]:
        """What workers said of one execution of a step."""
        return self._executions.get(key, [])

    def decision(self, key: AttemptKey) -> Record | None:
        """What somebody decided of an approval."""
        return self._decided.get(key)

    def token(self, key: AttemptKey) -> str | None:
        """That of an approval."""
        return self._asked[key].payload.token if key in self._asked else None

    def received(self, key: AttemptKey) -> Record | None:
        """The event that a step waited for."""
        return self._received.get(key)

    def child_end(self, key: AttemptKey) -> Record | None:
        """How the child of a step ended, or that it could not be started."""
        return self._children.get(key)

    def next_slot(self, holder: str) -> Record | None:
        """The next word of a limit to the holder: each is told once."""
        told = self._slots.get(holder)
        return told.popleft() if told else None

    def stored_at(self, event: Event) -> float | None:
        """When the engine's word was stored: of each there may be several, one after the other."""
        told = self._own.get(_of_engine(event))
        return told.popleft() if told else None

    def fired_at(self, timer: str, due: float) -> float | None:
        """When this timer fired: a little later than it was due."""
        return self._fired.get((timer, rfc3339(due)))

    @property
    def has_ended(self) -> bool:
        return self.run is not None and self.run.ended

    def again(self) -> Recording:
        """From the beginning."""
        return Recording(self.run_id, self.definition, self.records)

    def _sort(self, record: Record) -> None:
        event = record.event
        match event:
            case WorkflowStarted() | WorkflowScheduled():
                self.begins.append(record)
            case WorkflowCancelled(payload=payload) if payload.compensation is None:
                self.outside.append(record)
            case TimerFired(payload=fired) if fired.early:
                self.outside.append(record)
            case TimerFired(payload=fired):
                self._fired.setdefault((fired.timer, event.timestamp), record.at)
            case StepTakenOver():
                self.taken_over.append(record)
            case ApprovalRequested():
                self._asked.setdefault(self._attempt(event), event)
            case ApprovalGranted() | ApprovalRejected():
                self._decided.setdefault(self._attempt(event), record)
            case EventReceived():
                self._received.setdefault(self._attempt(event), record)
            case ChildEnded():
                self._children.setdefault(self._attempt(event), record)
            case LimitGranted(payload=slot) | LimitRefused(payload=slot):
                self._slots[slot.holder].append(record)
            case _ if isinstance(event, BY_OTHERS):
                self.outside.append(record)
            case StepStarted(payload=StepFacts()):
                self._own[_of_engine(event)].append(record.at)
            case StepFailed(worker_id=None, payload=failure) if failure.error.startswith(TOO_LONG):
                self._own[_of_engine(event)].append(record.at)
            case StepStarted() | StepPaused() | StepCompleted() | StepFailed() | StepContinue():
                step_id, attempt = self._attempt(event)
                self._executions[step_id, self._iteration(event), attempt].append(record)
                if isinstance(event, StepFailed):  # a child that could not be started, perhaps
                    self._children.setdefault((step_id, attempt), record)
            case _:
                self._own[_of_engine(event)].append(record.at)

    def _attempt(self, event: StepEvent) -> AttemptKey:
        """None in the event is the current one."""
        return event.step_id, event.attempt_number or self._step(event).attempts

    def _iteration(self, event: StepEvent) -> int:
        return self._step(event).iteration if event.iteration is None else event.iteration

    def _step(self, event: StepEvent) -> StepState:
        return (None if self.run is None else self.run.find(event.step_id)) or StepState()


def read(source: Export) -> Recording:
    """Read an export. Raises Invalid for what is none, OSError for a file that cannot be read."""
    where = "the export"
    if isinstance(source, Path) or (isinstance(source, str) and not source.lstrip().startswith("{")):
        where, source = f"the export {source}", Path(source).read_bytes()
    elif isinstance(source, Mapping):
        source = orjson.dumps(source)
    try:
        found = msgspec.json.decode(source, type=_ExportedRun)
        records = [_record(bytes(event)) for event in found.events]
    except (msgspec.MsgspecError, UnicodeDecodeError, Malformed, ValueError) as error:
        raise Invalid(f"{where} is no export of a run: {error}") from error
    return Recording(found.run_id, bytes(found.definition), records)


def _record(body: bytes) -> Record:
    stored = msgspec.json.decode(body, type=_StoredEvent)
    return Record(stored.seq, instant(stored.stored_at), decode(body))


def _of_engine(event: Event) -> tuple[str, str, int]:
    """What the engine says again, if nothing else has changed."""
    return event_type(event), getattr(event, "step_id", ""), getattr(event, "attempt_number", None) or 0


def _one_after_the_other(records: list[Record]) -> list[Record]:
    """What is stored at one moment, in the order of the log."""
    found, at = list[Record](), 0.0
    for record in records:
        at = max(record.at, at + APART_S)
        found.append(Record(record.seq, at, record.event))
    return found
