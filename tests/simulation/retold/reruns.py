"""Runs that repeat another one from a step on: what they take over, and that they carry out only the rest. Told of
every run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UnsetType

from penstock.broker.worker_messages import TaskPayload
from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.run.event_payloads import Started
from penstock.engine.run.events import Record, StepTakenOver, WorkflowStarted
from penstock.engine.run.state import STEP_DONE, Run, StepState
from tests.simulation.broken import Broken
from tests.simulation.retold.told import OUT, followed, json


class Reruns:
    """What one run takes over of another one, by the logs of both. `firsts` are the states of the other one of which it
    may be a rerun, the latest first."""

    def __init__(self, definition: WorkflowDef, run_id: str, firsts: Sequence[Run]) -> None:
        self._definition, self._run_id, self._firsts = definition, run_id, firsts
        self._first = firsts[0]
        self._left: set[str] = set()
        self._taken: set[str] = set()

    def take(self, run: Run, record: Record) -> None:
        """An event has changed the run. Raises Broken."""
        match record.event:
            case WorkflowStarted(payload=started) if started.rerun_from is not None:
                self._begun(started)
            case StepTakenOver(item=None) as event:
                self._took(run, event)
        if self._left and any(
            step.status in OUT and step_id not in run.fragments for step_id, step in run.steps.items()
        ):
            raise self._broken(f"it begins, and has not taken over {sorted(self._left)}")

    def queued(self, task: TaskPayload) -> None:
        """A task was queued. Raises Broken."""
        if task.step_id in self._taken or task.step_id.rpartition(".")[0] in self._taken - {followed(task.step_id)}:
            raise self._broken(f"{task.step_id} is carried out, and it has taken it over")

    def _begun(self, started: Started) -> None:
        takes = started.takes
        done = set() if takes is None else set(takes.done)
        self._left = set() if takes is None else {*takes.done, *takes.parts}
        if self._first.fragments:
            return  # what depends on the steps of plans is another subject
        below, own = again(self._definition, started.rerun_from or ""), {one for one in done if followed(one) == one}
        first = next((first for first in self._firsts if _done(first) - below == own), None)
        if first is None:
            wanted = _done(self._first) - below
            raise self._broken(f"from {started.rerun_from} it takes over {sorted(done)}, not {sorted(wanted)}")
        self._first = first

    def _took(self, run: Run, event: StepTakenOver) -> None:
        if event.step_id not in self._left:
            raise self._broken(f"{event.step_id} is taken over, and was not to be")
        self._left.discard(event.step_id)
        if run.steps[event.step_id].status not in STEP_DONE:
            return
        self._taken.add(event.step_id)
        mine, theirs = run.steps[event.step_id], self._first.steps[event.step_id]
        given = (_output(mine) or {}).get("given") if isinstance(_output(mine), dict) else None
        if given is None and (mine.status, _output(mine)) != (theirs.status, _output(theirs)):
            raise self._broken(f"{event.step_id} is taken over with {_output(mine)}, and has {_output(theirs)}")

    def _broken(self, what: str) -> Broken:
        return Broken(f"retold: {what}", self._run_id)


def again(definition: WorkflowDef, from_step: str) -> set[str]:
    """The step, and all that depends on it."""
    found = {from_step}
    for _ in definition.steps:
        found |= {step.id for step in definition.steps if found & set(step.depends_on)}
    return found


def _done(run: Run) -> set[str]:
    return {one for one, step in run.steps.items() if followed(one) == one and step.status in STEP_DONE}


def _output(step: StepState) -> Any:
    """What the state has of it."""
    return None if isinstance(step.output, UnsetType) else json(step.output)
