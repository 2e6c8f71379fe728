"""Which run has started which, as the log says: children, and runs that follow from a failure. By rules of its own, as
retelling.py, for what concerns more than one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from penstock.broker import names
from penstock.engine.run.events import ChildEnd, ParentRef, Record, Started, WorkflowCancelled, decode
from penstock.engine.run.state import Run, RunStatus
from tests.simulation.broken import Broken

if TYPE_CHECKING:
    from tests.simulation.retelling import Retelling
    from tests.simulation.streams import Stream

PARENTS_REASON = "of its parent run"


class Attempt(NamedTuple):
    """An attempt of a step, or of an element of a map, that starts a run."""

    run_id: str
    step_id: str
    number: int


class Families:
    """Owned by the watch. `retold` are the retellings of all runs of larger workflows."""

    def __init__(self, history: Stream, retold: Mapping[str, Retelling]) -> None:
        self._history, self._retold = history, retold
        self.child_of: dict[Attempt, str] = {}
        self.ended: dict[str, tuple[RunStatus, Any]] = {}
        self._unwanted: dict[str, str] = {}
        self._failures: dict[str, int] = {}
        self._followers: dict[str, list[str]] = {}

    def begun(self, run_id: str, started: Started, record: Record) -> None:
        """A run has begun. Raises Broken if it should not have."""
        if isinstance(started.parent, ParentRef):
            self._child_begun(run_id, started, started.parent)
        if started.failure_of is not None:
            self._follower_begun(run_id, started, started.failure_of)

    def over(self, attempt: Attempt, *, detached: bool) -> None:
        """The attempt does not wait for its child any more, which should not go on without it."""
        child = self.child_of.get(attempt)
        if child is not None and not detached and child not in self.ended:
            self._unwanted[child] = f"attempt {attempt.number} of {attempt.step_id} of {attempt.run_id} is over"

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
        for child, why in self._unwanted.items():
            self.check_told(child, why)
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
                self.check_told(child, self._unwanted[child])

    def check_told(self, child: str, why: str) -> None:
        events = (decode(message.data) for message in self._history.matching(names.stored_subject(child)))
        if not any(
            isinstance(event, WorkflowCancelled) and PARENTS_REASON in (event.payload.reason or "") for event in events
        ):
            raise Broken(f"retold: its parent does not cancel it, and {why}", child)

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
