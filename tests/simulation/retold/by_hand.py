"""Steps that somebody has completed, or has had tried again at once. Told of every run."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.broker.worker_messages import TaskPayload
from penstock.engine.run.event_payloads import TimerRef
from penstock.engine.run.events import Record, StepOverridden, TimerFired
from penstock.engine.run.state import Run, StepStatus
from tests.simulation.broken import Broken
from tests.simulation.retold.tasks import Queued, check_gone, given_up
from tests.simulation.retold.told import HANDLER, followed, json
from tests.simulation.streams import Message, Stream


class ByHand:
    """Those of one run, by its log alone: both are appended only if nothing has happened since the run was read, so
    they must have an effect. `outputs` are those that were given."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self.outputs: dict[str, object] = {}
        self._tasks: list[Queued] = []
        self._unwanted: list[Queued] = []

    def take(self, before: Run, run: Run, record: Record) -> None:
        """An event was folded, perhaps without effect. Raises Broken."""
        match record.event:
            case StepOverridden(step_id=step_id) as event:
                self._completed(before, run, event)
                self._unwanted += [one for one in given_up(self._tasks, before, run) if _is_of(one.task, step_id)]
            case TimerFired(payload=fired) if fired.early:
                self._check_tried(before, run, fired)

    def queued(self, message: Message, task: TaskPayload) -> None:
        """A task was put into its queue."""
        self._tasks.append(Queued(message, task))

    def saved(self, run: Run, streams: Mapping[str, Stream], last: Run) -> None:
        """A snapshot was stored that is the last state: what was out for the steps was withdrawn. Raises Broken."""
        if run.seq == last.seq:
            check_gone(self._unwanted, run, streams)

    def _completed(self, before: Run, run: Run, event: StepOverridden) -> None:
        step_id, output = event.step_id, json(event.payload.output)
        if run is before:
            raise self._broken(f"{step_id} was completed by hand in vain")
        step = run.steps[step_id]
        if (step.status, json(step.output)) != (StepStatus.COMPLETED, output):
            raise self._broken(f"{step_id} was completed by hand with {output}, and is {step.status}")
        recovers = step_id.endswith(HANDLER)
        if recovers and run.steps[followed(step_id)].status is not StepStatus.RECOVERED:
            raise self._broken(f"{step_id} was completed by hand, and its step does not recover")
        self.outputs[step_id] = output

    def _check_tried(self, before: Run, run: Run, fired: TimerRef) -> None:
        """The next attempt is ordered now; of a paused run when it goes on."""
        step = run.step(fired.step_id or "")
        if before.pause is None and step.status is StepStatus.QUEUED and step.due is not None:
            raise self._broken(f"{fired.step_id} is to be tried now, and waits")

    def _broken(self, what: str) -> Broken:
        return Broken(f"retold: {what}", self._run_id)


def _is_of(task: TaskPayload, step_id: str) -> bool:
    """Whether it is a task of the step, of its elements, or of the handler that is not needed any more."""
    return followed(task.step_id) == step_id or task.step_id == step_id or task.step_id.rpartition(".")[0] == step_id
