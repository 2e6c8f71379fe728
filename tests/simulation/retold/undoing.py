"""How a run undoes what it has done: what, in which order, what it waits for, and how it ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.config.limits import COMPENSATION_WAIT_S
from penstock.engine.definition.durations import parse
from penstock.engine.run.event_payloads import StepFacts
from penstock.engine.run.events import (
    Event,
    Record,
    StepStarted,
    TimerFired,
    WorkflowCancelled,
    WorkflowCompensating,
    WorkflowFailed,
)
from penstock.engine.run.state import Run, RunStatus, StepState
from tests.simulation.retold.told import COMPENSATION, HANDLER, OUT, Told, followed, is_timeout

ROUNDED_S = 0.001  # times in events are texts with microseconds
WORKED = ("normal", "map")  # whose tasks are waited for if they can be undone


class Begun(NamedTuple):
    """When an attempt has begun."""

    attempt: int
    at: float


class Undoing:
    """That of one run. `since` is when it began."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self.since: float | None = None
        self._begun: dict[str, Begun] = {}
        self._given_up: set[str] = set()
        self._ends: RunStatus | None = None
        self._todo: list[str] = []
        self._announced = False

    def heard(self, before: Run, run: Run, record: Record) -> None:
        """An event has changed the run, and what it says of a step is told. Raises Broken."""
        if before.status is RunStatus.RUNNING:
            self._plans_done()
        self._notice(before, record)
        if before.status is RunStatus.COMPENSATING:
            self._go_on(run, record)
        elif run.status is RunStatus.COMPENSATING:
            self._begin(record)
        elif run.status is RunStatus.FAILED or _undoes(record.event):
            self._check_nothing_left(run)

    def begun(self, before: Run, start: Record) -> None:
        """An answer tells its start."""
        self._notice(before, start)

    def _check_nothing_left(self, run: Run) -> None:
        if left := [*self._undone_next(), *self._may_complete()]:
            raise self._told.broken(f"it is {run.status}, and does not undo {left}")

    def resumed(self) -> None:
        """Raises Broken: what is undone does not go on."""
        if self.since is not None:
            raise self._told.broken("it goes on, and has begun to undo its steps")
        self._begun.clear()

    def moved(self, step_id: str, old: StepState, new: StepState, record: Record) -> None:
        """What may still begin once a run undoes its steps. Raises Broken."""
        begins = new.status in OUT and old.status not in OUT
        if step_id.endswith(COMPENSATION) and begins:
            self._check_turn(followed(step_id))
        elif self.since is not None and begins and not (isinstance(record.event, StepStarted) and old.attempts):
            raise self._told.broken(f"{step_id} begins, and the run undoes its steps")

    def _plans_done(self) -> None:
        """Planners complete with the last step of their plans; those in the plans of others before these."""
        told = self._told
        for planner in sorted(told.fragments, key=len, reverse=True):
            if planner not in told.done_seq and told.is_done(planner) and not told.is_recovered(planner):
                told.done_seq[planner] = told.seq

    def _notice(self, before: Run, record: Record) -> None:
        """What begins to be carried out, by a worker or as a child; and what is given up."""
        match event := record.event:
            case StepStarted() if self._outlives(event.step_id, event.payload):
                attempt = event.attempt_number or before.step(event.step_id).attempts
                former = self._begun.get(event.step_id)
                if former is None or former.attempt != attempt:
                    self._begun[event.step_id] = Begun(attempt, record.at)
            case TimerFired() if self.since is not None:
                self._give_up(event.payload.step_id or "", record)
            case WorkflowCompensating():
                self._announced = True

    def _outlives(self, step_id: str, facts: StepFacts | None) -> bool:
        """Whether this is the begin of something that is waited for."""
        if followed(step_id) != step_id:
            return False
        step = self._told.whole(step_id)
        if facts is not None:
            return facts.child_run_id is not None and not (step.config or {}).get("detach")
        return step.type in WORKED and step.compensate is not None

    def _begin(self, record: Record) -> None:
        event = record.event
        self.since, self._todo = record.at, self._undone_next()
        if not self._todo and not self._may_complete():
            raise self._told.broken("it undoes its steps, and there is nothing to undo")
        self._ends = RunStatus.CANCELLED if isinstance(event, WorkflowCancelled) else RunStatus.FAILED
        if isinstance(event, WorkflowCancelled) and not _undoes(event):
            raise self._told.broken("it undoes its steps, and was cancelled without that")
        if self._ends is RunStatus.FAILED and not self._has_failed(event):
            raise self._told.broken(f"it undoes its steps, and goes on by {event}")

    def _has_failed(self, event: Event) -> bool:
        """Whether the run fails with this event."""
        if isinstance(event, WorkflowFailed) or is_timeout(event):
            return True
        step_id = event.payload.step_id if isinstance(event, TimerFired) else getattr(event, "step_id", None)
        step = None if step_id is None else self._told.whole(step_id)
        if step is None or not self._told.has_failed(step.id):
            return False
        handled = self._told.results.get(step.id + HANDLER)
        return step.on_failure is None or (handled is not None and handled.final and not handled.ok)

    def _go_on(self, run: Run, record: Record) -> None:
        event = record.event
        if isinstance(event, WorkflowCompensating):
            self._check_announced(event)
        if run.ended:
            self._check_end(run, event)

    def _check_announced(self, event: WorkflowCompensating) -> None:
        """It names the steps, of elements their maps, in the order in which they are undone."""
        wanted = list(dict.fromkeys(self._told.whole(one).id for one in self._todo))
        if list(event.payload.steps) != wanted:
            raise self._told.broken(f"it says that it undoes {event.payload.steps}, and does {wanted}")

    def _check_turn(self, step_id: str) -> None:
        """This is what has completed last, and nothing else is under way."""
        if self.since is None:
            raise self._told.broken(f"{step_id} is undone, and the run goes on")
        if waits := self._running():
            raise self._told.broken(f"{step_id} is undone, and {waits} may still complete")
        results = self._told.results
        undone = [one for one in self._told.done_seq if (result := results.get(one + COMPENSATION)) and result.final]
        turn = next(iter(self._undone_next(undone)), None)
        if turn != step_id:
            raise self._told.broken(f"{step_id} is undone, and it is the turn of {turn}")

    def _check_end(self, run: Run, event: Event) -> None:
        results = {one: self._told.results.get(one + COMPENSATION) for one in self._undone_next()}
        if left := [one for one, result in results.items() if result is None or not result.final]:
            raise self._told.broken(f"it has ended, and has not undone {left}")
        if waits := self._running():
            raise self._told.broken(f"it has ended, and {waits} may still complete")
        outcome = "completed" if all(result is not None and result.ok for result in results.values()) else "failed"
        told = event.payload.compensation if isinstance(event, WorkflowFailed | WorkflowCancelled) else None
        if (run.status, told) != (self._ends, outcome):
            raise self._told.broken(f"it is {run.status}, compensation {told}, and should be {self._ends}, {outcome}")
        if not self._announced:
            raise self._told.broken("its log does not say that it has undone its steps")

    def _give_up(self, step_id: str, record: Record) -> None:
        """The time is over for which it is waited for."""
        begun = self._begun.get(step_id)
        if begun is None or step_id not in self._running():
            return
        timeout, since = self._told.whole(step_id).timeout, self.since or 0.0
        until = max(begun.at, since) + COMPENSATION_WAIT_S if timeout is None else begun.at + parse(timeout)
        if record.at < until - ROUNDED_S:
            raise self._told.broken(f"{step_id} is given up {until - record.at:.3f} s too early")
        self._given_up.add(step_id)

    # What is so by the log

    def _undone_next(self, without: Iterable[str] = ()) -> list[str]:
        """What has completed and can be undone, the last one first; of one event, planners before their steps."""
        found = [one for one in self._told.done_seq if one not in without and self._can_be_undone(one)]
        return sorted(found, key=lambda one: (-self._told.done_seq[one], len(one), one))

    def _can_be_undone(self, step_id: str) -> bool:
        if followed(step_id) != step_id:
            return False
        step = self._told.whole(step_id)
        is_map = step_id in self._told.steps and step.type == "map"  # its elements are
        return step.compensate is not None and not is_map and not self._told.is_recovered(step.id)

    def _running(self) -> list[str]:
        """What workers and children carry out, and is waited for."""
        return [one for one, begun in self._begun.items() if self._runs(one, begun)]

    def _runs(self, one: str, begun: Begun) -> bool:
        result, step = self._told.results.get(one), self._told.whole(one)
        if one in self._given_up or (result is not None and result.attempt >= begun.attempt):
            return False
        if step.id in self._told.overridden:
            return False
        if one in self._told.steps:
            return True
        return not (self._told.is_recovered(step.id) or (step.compensate is None and self._told.has_failed(step.id)))

    def _may_complete(self) -> list[str]:
        """What runs, and can be undone when it has completed."""
        return [one for one in self._running() if self._told.whole(one).compensate is not None]


def _undoes(event: Event) -> bool:
    return isinstance(event, WorkflowCancelled) and event.payload.compensate
