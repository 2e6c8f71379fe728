"""Which run has started which, as the log says: children, and runs that follow from a failure. What concerns
more than one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import orjson

from penstock.broker import names
from penstock.engine.run.event_payloads import ChildEnd, ParentRef, Started
from penstock.engine.run.events import Record, WorkflowCancelled, WorkflowPaused, WorkflowUnpaused, decode
from penstock.engine.run.state import Run, RunStatus
from tests.simulation.broken import Broken

if TYPE_CHECKING:
    from tests.simulation.retold.retelling import Retelling
    from tests.simulation.streams import Stream

PARENTS_REASON = "of its parent run"
PauseEvent: TypeAlias = type[WorkflowPaused] | type[WorkflowUnpaused]


class Attempt(NamedTuple):
    """An attempt of a step, or of an element of a map, that starts a run."""

    run_id: str
    step_id: str
    number: int


class Unwanted(NamedTuple):
    """Why a child should not go on, and whether it is to undo its steps; None: that depends."""

    why: str
    undoes: bool | None


class Order(NamedTuple):
    """What a child is told after event `seq` of its parent."""

    child: str
    kind: PauseEvent
    seq: int


class Families:
    """Owned by the watch. `retold` are the retellings of all runs of larger workflows."""

    def __init__(self, history: Stream, retold: Mapping[str, Retelling]) -> None:
        self._history, self._retold = history, retold
        self.child_of: dict[Attempt, str] = {}
        self.ended: dict[str, tuple[RunStatus, Any]] = {}
        self._unwanted: dict[str, Unwanted] = {}
        self._orders: dict[str, list[Order]] = {}
        self._failures: dict[str, int] = {}
        self._followers: dict[str, list[str]] = {}

    def begun(self, run_id: str, started: Started, record: Record) -> None:
        """A run has begun. Raises Broken if it should not have."""
        if isinstance(started.parent, ParentRef):
            self._child_begun(run_id, started, started.parent)
        if started.failure_of is not None:
            self._follower_begun(run_id, started, started.failure_of)

    def over(self, attempt: Attempt, *, detached: bool, undoes: bool | None = None) -> None:
        """The attempt does not need its child any more, which should not go on without it."""
        child = self.child_of.get(attempt)
        if child is not None and not detached and child not in self.ended:
            why = f"attempt {attempt.number} of {attempt.step_id} of {attempt.run_id} is over"
            self._unwanted.setdefault(child, Unwanted(why, undoes))

    def told(self, parent: str, child: str, kind: PauseEvent, seq: int) -> None:
        """By event `seq` of its parent, a child is to be paused, or to go on."""
        if child not in self.ended:
            self._orders.setdefault(parent, []).append(Order(child, kind, seq))

    def goes_on(self, parent: str) -> None:
        """It is not paused any more: a pause that was not passed on yet is void."""
        left = [one for one in self._orders.get(parent, ()) if one.kind is not WorkflowPaused]
        self._orders[parent] = left

    def check_orders(self, parent: str) -> None:
        """What its children were to do was sent to them. Raises Broken."""
        for child, kind, seq in self._orders.pop(parent, ()):
            events = self._history.matching(names.stored_subject(child), seq)
            if (
                child not in self.ended
                and not self._is_removed(child)
                and not any(isinstance(decode(message.data), kind) for message in events)
            ):
                raise Broken(f"retold: its parent {parent} sends it no {kind.__name__}", child)

    def finished(self, run: Run, output: Any) -> None:
        """A run has ended, or ended again."""
        self.ended[run.run_id] = (run.status, output)
        if run.status is RunStatus.FAILED:
            self._failures[run.run_id] = self._failures.get(run.run_id, 0) + 1

    def resumed(self, run_id: str) -> None:
        self.ended.pop(run_id, None)

    def check_end(self, attempt: Attempt, told: ChildEnd) -> None:
        """An attempt has ended with its child: that must be its own, and it must have ended so. Raises Broken."""
        child = self.child_of.get(attempt)
        if child != told.run_id:
            raise Broken(f"retold: {attempt.step_id} was ended by {told.run_id}, its child is {child}", attempt.run_id)
        status, output = self.ended.get(child, (None, None))
        if status is None:
            return  # a child that was resumed since
        if status != told.status or (status is RunStatus.COMPLETED and orjson.loads(bytes(told.output)) != output):
            raise Broken(f"retold: the child of {attempt.step_id} is {status}, and not {told.status}", attempt.run_id)

    def check(self) -> None:
        """At the end. Raises Broken."""
        for child, unwanted in self._unwanted.items():
            self._check_told(child, unwanted)
        for run_id, count in self._failures.items():
            retelling = self._retold.get(run_id)
            if retelling is None or retelling.definition.on_failure is None or retelling.follows:
                continue
            if (found := len(self._followers.get(run_id, ()))) != count:
                raise Broken(f"retold: it has failed {count} times, and {found} runs have followed", run_id)

    def check_children(self, run_id: str) -> None:
        """Everything that followed from the run's end was done. Raises Broken."""
        for attempt, child in self.child_of.items():
            if attempt.run_id == run_id and child in self._unwanted:
                self._check_told(child, self._unwanted[child])

    def _check_told(self, child: str, unwanted: Unwanted) -> None:
        events = (decode(message.data) for message in self._history.matching(names.stored_subject(child)))
        told = [
            event.payload.compensate
            for event in events
            if isinstance(event, WorkflowCancelled) and PARENTS_REASON in (event.payload.reason or "")
        ]
        if not told and not self._is_removed(child):
            raise Broken(f"retold: its parent does not cancel it, and {unwanted.why}", child)
        if told and unwanted.undoes not in (None, told[0]):
            raise Broken(f"retold: its parent has it undo its steps: {told[0]}, and {unwanted.why}", child)

    def _is_removed(self, child: str) -> bool:
        run = self._retold[child].told.run if child in self._retold else None
        return run is not None and run.removed

    def _child_begun(self, run_id: str, started: Started, parent: ParentRef) -> None:
        attempt = Attempt(parent.run_id, parent.step_id, parent.attempt)
        former = self.child_of.setdefault(attempt, run_id)
        if former != run_id:
            raise Broken(f"retold: {attempt} has started {former} and {run_id}", parent.run_id)
        retelling = self._retold.get(parent.run_id)
        if retelling is None:
            raise Broken("retold: a child of a run without children", run_id)
        if not retelling.child(attempt, started):
            self.over(attempt, detached=parent.detached)

    def _follower_begun(self, run_id: str, started: Started, failed: str) -> None:
        found = self._followers.setdefault(failed, [])
        found.append(run_id)
        if len(found) > self._failures.get(failed, 0):
            raise Broken(f"retold: {len(found)} runs follow {self._failures.get(failed, 0)} failures", failed)
        if failed in self._retold:
            self._retold[failed].follower(started)
