"""What an operator does to the run of the state machine: a step is completed by hand, an attempt begins before its
time."""

from __future__ import annotations

from msgspec import Raw

from penstock.engine.run.control.overriding import refusal
from penstock.engine.run.event_payloads import Override, Resumed, TimerRef
from penstock.engine.run.events import Record, StepOverridden, TimerFired, WorkflowResumed
from penstock.engine.run.expansion import expanded
from penstock.engine.run.slots.starting import begun_soon
from penstock.engine.run.state import STEP_DONE, RunStatus, StepStatus
from penstock.engine.run.timers import step_timers
from tests.properties.shell import Shell
from tests.properties.world import RUN_ID, some

SMALL, LARGE = Raw(b'{"by":"hand"}'), Raw(b'"%b"' % (b"h" * 5000))


class Operator(Shell):
    """Appends as the front end does: where the state that it has read is still the newest."""

    def complete_by_hand(self, pick: int) -> None:
        """Any step: where it may be, it has completed then; else nothing changes. What is on its way lands after it."""
        run = self.known()
        step_id = some(list(run.steps), pick)
        if run.status is RunStatus.FAILED and run.compensation is None:
            self._after_failure(step_id, pick)
            return
        refused, before = refusal(self.whole(), run, step_id), self.run
        commands = self.append(self._completion(step_id, pick))
        if refused is None:
            self._check_done(step_id)
        else:
            assert self.run is before
            assert commands == []
        self.settle()

    def _after_failure(self, step_id: str, pick: int) -> None:
        """The resumption that holds the step, and its completion, are stored together."""
        resumed = Resumed(dead_letters=self.broker.last_letter, holds=step_id)
        before, ahead = self.known(), (self.run, list(self.log), list(self.states), list(self.ordered))
        orders, results = list(self.orders), list(self.results)
        self.append(WorkflowResumed(run_id=RUN_ID, timestamp=self.stamp(), payload=resumed))
        if before.steps[step_id].status in STEP_DONE or self._is_refused(step_id):
            self.run, self.log, self.states, self.ordered = ahead  # the front end refuses it: nothing was stored
            self.orders, self.results = orders, results
            return
        self.tell(self._completion(step_id, pick))
        assert self.known().resumes == before.resumes + 1
        if self.known().status is not RunStatus.PENDING:
            self._check_done(step_id)

    def _is_refused(self, step_id: str) -> bool:
        """Whether it could not be completed by hand in the run as it goes on, at once or when it has its slots."""
        run = self.known()
        found = begun_soon(self.workflow, run, Record(run.seq, self.broker.now, self.log[-1].event))
        return refusal(expanded(self.workflow, found), found, step_id) is not None

    def _completion(self, step_id: str, pick: int) -> StepOverridden:
        output = LARGE if pick % 3 == 0 else SMALL
        return StepOverridden(run_id=RUN_ID, step_id=step_id, timestamp=self.stamp(), payload=Override(output, "ada"))

    def _check_done(self, step_id: str) -> None:
        step = self.known().steps[step_id]
        assert (StepStatus.COMPLETED, True) == (step.status, step.overridden)
        if step.handles is not None:
            assert StepStatus.RECOVERED is self.known().steps[step.handles].status

    def waiting(self) -> list[str]:
        """The steps that wait for their next attempt, or a loop's next iteration."""
        run = self.known()
        if run.status is not RunStatus.RUNNING or run.failing:
            return []
        return [key for key, step in run.steps.items() if step.status is StepStatus.QUEUED and step.due is not None]

    def begin_now(self, step_id: str) -> None:
        """The wait for the next attempt ends early; its timer does not come any more."""
        step = self.known().steps[step_id]
        (timer,) = [one for one in step_timers(self.known(), step_id, step) if one.timer.startswith("retry.")]
        ref = TimerRef(timer.timer, step_id, timer.attempt, early=True)
        self.append(TimerFired(run_id=RUN_ID, timestamp=self.stamp(), payload=ref))
        pause = self.known().pause
        assert self.known().steps[step_id].due is None or (pause is not None and timer.timer in pause.timers)
        self.settle()
        assert not self.performs or timer.timer not in self.broker.timers
