"""The run of the state machine is paused, and goes on."""

from __future__ import annotations

from penstock.engine.run.event_payloads import PauseScope
from penstock.engine.run.events import WorkflowPaused, WorkflowUnpaused
from penstock.engine.run.state import StepStatus
from tests.properties.shell import Shell
from tests.properties.world import RUN_ID


class Pausing(Shell):
    """As whoever pauses a run does it: any number of times, with its children or without."""

    def pause_run(self, *, children: bool) -> None:
        """A run that has not ended is paused then, and nothing of its steps has changed; its timeout stands still."""
        before = self.known()
        self.append(WorkflowPaused(run_id=RUN_ID, timestamp=self.stamp(), payload=PauseScope(children), v=2))
        after = self.known()
        assert (after.pause is None) is before.ended
        assert (after.status, after.steps) == (before.status, before.steps)
        self.settle()

    def unpause_run(self, *, children: bool) -> None:
        """The run goes on with what is left of its timeout; each execution that is queued is ordered once more."""
        before = self.known()
        assert before.pause is not None
        self.append(WorkflowUnpaused(run_id=RUN_ID, timestamp=self.stamp(), payload=PauseScope(children), v=2))
        after = self.known()
        assert (after.pause, after.pauses) == (None, before.pauses)
        if before.pause.left is not None and not (after.ended or after.failing or after.compensation):
            assert after.due == self.broker.now + before.pause.left
        self.settle()

    def is_held(self, step_id: str) -> bool:
        """Whether nobody needs to have the execution now: it is ordered when the run goes on."""
        pause, step = self.known().pause, self.known().step(step_id)
        return pause is not None and (step.status is StepStatus.QUEUED or step_id in pause.begun)
