"""The loop of a service in memory: events are appended, folded by `advance`, and the commands performed, one after the
other. There is one order of things: what is appended is folded before time moves on."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from penstock.broker import message_ids
from penstock.engine.errors import NotFound
from penstock.engine.run.advance import advance
from penstock.engine.run.commands import Command, DeadLetterTask
from penstock.engine.run.events import Event, Record, WorkflowScheduled, WorkflowStarted
from penstock.engine.run.expansion import expanded
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import Workflow
from penstock.testing.memory.catalog import CatalogInMemory
from penstock.testing.memory.timeline import Timeline

REPEAT_S = 5.0  # an event that comes again under its id within this time is a repeat, as for the broker
AT_ONCE_MAX = 1_000_000  # events and actions at one moment: more are a circle


class RunInMemory:
    """Owned by the engine in memory. `workflow` is None as long as the run has not begun: it may be cancelled before
    that."""

    __slots__ = ("_ids", "records", "run", "run_id", "workflow")

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.workflow: Workflow | None = None
        self.run: Run | None = None
        self.records: dict[int, Record] = {}
        self._ids: dict[str, float] = {}

    def is_repeat(self, message_id: str, now: float) -> bool:
        """Whether an event came under this id just before; else it counts from now on."""
        if (before := self._ids.get(message_id)) is not None and now - before < REPEAT_S:
            return True
        self._ids[message_id] = now
        return False

    def event_at(self, seq: int) -> Event:
        return self.records[seq].event

    @property
    def known(self) -> Run:
        """The state of a run that has begun."""
        assert self.run is not None
        return self.run

    @property
    def whole(self) -> Workflow:
        """The workflow with the steps that planners have inserted."""
        assert self.workflow is not None
        return expanded(self.workflow, self.run)


class Performs(Protocol):
    """Carries out the commands of a run (performing.py)."""

    def perform(self, of: RunInMemory, command: Command) -> None: ...


class EngineInMemory:
    """Owned by a service in memory. `seq` is the sequence of the last event in the log."""

    def __init__(self, timeline: Timeline, catalog: CatalogInMemory) -> None:
        self.timeline, self.catalog = timeline, catalog
        self.runs: dict[str, RunInMemory] = {}
        self.seq = 0
        self.performer: Performs
        self._appended: deque[tuple[RunInMemory, Record]] = deque()

    def append(self, event: Event, message_id: str | None = None) -> bool:
        """Store an event in its run's history. Returns False for a repeat, which is not stored."""
        of = self.runs.get(event.run_id)
        if of is None:
            of = self.runs[event.run_id] = RunInMemory(event.run_id)
        if of.is_repeat(message_id or message_ids.of_event(event), self.timeline.now):
            return False
        self.seq += 1
        record = of.records[self.seq] = Record(self.seq, self.timeline.now, event)
        self._appended.append((of, record))
        return True

    def append_at(self, when: float, event: Event) -> None:
        """Store an event at this time, or now if that is over."""

        def store() -> None:
            self.append(event)

        self.timeline.at(when, store)

    def get(self, run_id: str) -> RunInMemory:
        """A run that has begun. Raises NotFound."""
        of = self.runs.get(run_id)
        if of is None or of.run is None:
            raise NotFound(f"run {run_id} does not exist")
        return of

    def advance_to_next(self) -> bool:
        """Do what is due next, at its time. Returns False when nothing is."""
        self.settle()
        if (when := self.timeline.next_at) is None:
            return False
        self.advance_to(when)
        return True

    def settle(self) -> None:
        """Do all that is due now."""
        self.advance_to(self.timeline.now)

    def advance_to(self, when: float) -> None:
        """Do all that is due until then, each at its time."""
        self._fold_all()
        moment, count = self.timeline.now, 0
        while self.timeline.step(when):
            self._fold_all()
            moment, count = self.timeline.now, count + 1 if self.timeline.now == moment else 0
            if count > AT_ONCE_MAX:
                raise RuntimeError(f"more than {AT_ONCE_MAX} things happen at {self.timeline.stamp}: it is a circle")
        self.timeline.now = max(self.timeline.now, when)

    def _fold_all(self) -> None:
        while self._appended:
            self._fold(*self._appended.popleft())

    def _fold(self, of: RunInMemory, record: Record) -> None:
        event = record.event
        if of.workflow is None:
            if not isinstance(event, WorkflowStarted | WorkflowScheduled):
                return
            of.workflow = self.catalog.by_digest(event.payload.digest).workflow
        of.run, commands = advance(of.workflow, of.run, record)
        for command in commands:
            if isinstance(command, DeadLetterTask):  # it is there before the event that fails the run
                self.performer.perform(of, command)
        for command in commands:
            if not isinstance(command, DeadLetterTask):
                self.performer.perform(of, command)
