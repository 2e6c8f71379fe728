"""The children of a run: which steps and elements have started them, with what, and how they end with them. What
concerns both runs is in families.py."""

from __future__ import annotations

from penstock.engine.run.event_payloads import Started
from penstock.engine.run.events import (
    ChildEnded,
    Event,
    StepStarted,
    WorkflowCancelled,
    WorkflowPaused,
    WorkflowUnpaused,
)
from penstock.engine.run.state import Run, RunStatus, StepStatus
from tests.simulation.retold import templates
from tests.simulation.retold.families import Attempt, Families, PauseEvent
from tests.simulation.retold.told import OUT, Told, json, value_of


class Children:
    """Those of one run."""

    def __init__(self, told: Told, families: Families) -> None:
        self._told, self._families = told, families
        self._are_paused = False

    def started(self, attempt: Attempt, started: Started) -> bool:
        """A child was started. Returns whether the attempt still waits for it. Raises Broken."""
        step = self._told.whole(attempt.step_id)
        assert self._told.run is not None
        state = self._told.run.find(attempt.step_id)
        if state is None or state.attempts < attempt.number:
            raise self._told.broken(f"attempt {attempt.number} of {attempt.step_id} has a child, and was never ordered")
        if started.workflow != (step.config or {})["workflow"]:
            raise self._told.broken(f"{attempt.step_id} has started a run of {started.workflow}")
        number = None if attempt.step_id in self._told.steps else int(attempt.step_id.rpartition(".")[2])
        wanted = self._told.input_of(step, number)
        if wanted is not templates.DEFAULT and json(started.input) != wanted:
            raise self._told.broken(f"the child of {attempt.step_id} was given {started.input!r}, not {wanted}")
        labels = templates.evaluated((step.config or {}).get("labels"), self._told.scope(step))
        if (started.labels or None) != labels:
            raise self._told.broken(f"the child of {attempt.step_id} has the labels {started.labels}, not {labels}")
        return state.attempts == attempt.number and state.status in OUT

    def begun(self, before: Run, event: StepStarted, child: str) -> None:
        """The parent's log says that a child has started. Raises Broken."""
        attempt = Attempt(self._told.run_id, event.step_id, before.step(event.step_id).attempts)
        if (known := self._families.child_of.get(attempt)) != child:
            raise self._told.broken(f"{event.step_id} says that its child is {child}, and has started {known}")
        if self._are_paused and self._told.paused:
            self._families.told(self._told.run_id, child, WorkflowPaused, self._told.seq)
        if self._is_detached(event.step_id):
            self._told.succeeded(event.step_id, attempt.number, {"run_id": child})

    def ended(self, before: Run, event: ChildEnded) -> None:
        """Raises Broken."""
        attempt = Attempt(self._told.run_id, event.step_id, before.step(event.step_id).attempts)
        end = event.payload
        self._families.check_end(attempt, end)
        if end.status == RunStatus.COMPLETED:
            self._told.succeeded(event.step_id, attempt.number, value_of(end.output))
        else:
            hopeless = end.status != RunStatus.FAILED or before.failing or before.status is RunStatus.COMPENSATING
            error = f"child run {end.run_id} {'was' if hopeless else 'failed:'} {end.error or end.status}"
            self._told.tried(event.step_id, attempt.number, error, hopeless=hopeless)

    def paused(self, before: Run, event: WorkflowPaused) -> None:
        """Those that the run waits for are to be paused with it, if that was ordered."""
        wider = event.payload.children and not (self._told.paused and self._are_paused)
        self._are_paused = event.payload.children or (self._told.paused and self._are_paused)
        if wider:
            self._tell(before, WorkflowPaused)

    def go_on(self, run: Run, event: WorkflowUnpaused) -> None:
        """Those that it waits for are to go on with it, if that was ordered."""
        self._families.goes_on(self._told.run_id)
        if event.payload.children and run.status is RunStatus.RUNNING:
            self._tell(run, WorkflowUnpaused)

    def _tell(self, run: Run, kind: PauseEvent) -> None:
        for one in self._parents():
            state = run.find(one)
            if state is None or state.status is not StepStatus.RUNNING or self._is_detached(one):
                continue
            child = self._families.child_of.get(Attempt(self._told.run_id, one, state.attempts))
            if child is not None:
                self._families.told(self._told.run_id, child, kind, self._told.seq)

    def let_go(self, before: Run, run: Run, event: Event) -> None:
        """The attempts that were out, and are not any more: of steps, and of elements, that start runs. Their children
        are to be cancelled, and also those of a run that begins to undo its steps; only a plain cancellation is one for
        the children, too. An attempt that its child's end has ended leaves nothing to cancel, though somebody may have
        resumed that child before its parent got to know."""
        undoes = not (isinstance(event, WorkflowCancelled) and not event.payload.compensate)
        stops = before.status is RunStatus.RUNNING and run.status is RunStatus.COMPENSATING
        for one in self._parents():
            old, new = before.find(one), run.find(one)
            if old is None or old.status not in OUT or (isinstance(event, ChildEnded) and event.step_id == one):
                continue
            if stops or new is None or new.attempts != old.attempts or new.status not in OUT:
                attempt = Attempt(self._told.run_id, one, old.attempts)
                self._families.over(attempt, detached=self._is_detached(one), undoes=undoes)

    def _parents(self) -> list[str]:
        """What starts children: steps, and elements of maps."""
        parents = [step.id for step in self._told.steps.values() if "workflow" in (step.config or {})]
        return [one for step_id in parents for one in self._told.executions(step_id)]

    def _is_detached(self, step_id: str) -> bool:
        return bool((self._told.whole(step_id).config or {}).get("detach"))
