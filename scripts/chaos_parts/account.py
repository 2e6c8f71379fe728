"""What a run's history means, told a second time: apart from the engine, by the words of the documentation.

It is not told by `advance`, so that an error there shows as a difference. It knows nothing of commands: which event
counts, and what it leaves behind, is all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field, json

from penstock.engine.run.kinds.agent_loop import loop_of
from penstock.engine.run.kinds.approval import approval_of
from penstock.engine.run.workflow import StepPlan, Workflow

ENDS = {"workflow.completed": "completed", "workflow.failed": "failed", "workflow.cancelled": "cancelled"}
ANSWERS = ("step.started", "step.completed", "step.failed", "step.continue")
DONE = ("completed", "skipped")


class Seen(Struct, frozen=True):
    """An event as the stream holds it; `payload` is its JSON. `at` is when the broker stored it, in s since the
    epoch."""

    seq: int
    at: float
    type: str
    step_id: str | None = None
    attempt: int | None = None
    iteration: int | None = None
    payload: Any = None


class _Wire(Struct, frozen=True):
    """An event as it stands in the log."""

    type: str
    step_id: str | None = None
    attempt_number: int | None = None
    iteration: int | None = None
    payload: Any = None


_WIRE = json.Decoder(_Wire)


def wire_event(seq: int, at: float, body: bytes) -> Seen:
    """An event out of its JSON in the log. Raises msgspec.MsgspecError."""
    wire = _WIRE.decode(body)
    return Seen(seq, at, wire.type, wire.step_id, wire.attempt_number, wire.iteration, wire.payload)


class StepAccount(Struct):
    """`attempt` and `iteration` are of the execution that is out, or was the last; 0: it has not been its turn. `base`
    are the attempts from before the run was resumed, `unbegun` those that nobody had begun when the run ended. `inputs`
    are what the later iterations of a loop were handed."""

    status: str = "pending"
    attempt: int = 0
    iteration: int = 0
    base: int = 0
    output: Any = None
    first_seq: int | None = None
    done_seq: int | None = None
    waits: bool = False
    began: bool = False
    paused: bool = False
    ever_began: bool = False
    erred: bool = False
    unbegun: int = 0
    inputs: dict[int, Any] = field(default_factory=dict)

    @property
    def begun(self) -> int:
        """The attempts that somebody has begun."""
        return self.attempt - self.unbegun - (self.status == "out" and not (self.began or self.waits))


class Account:
    """Owned by the checker; one a run. `problems` are events that nobody should have written, or not then."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.status = ""
        self.steps: Mapping[str, StepAccount] = {step_id: StepAccount() for step_id in workflow.steps}
        self.input: Any = None
        self.resumes = 0
        self.doomed = False
        self.started: Seen | None = None
        self.decisions: list[Seen] = []
        self.late = 0
        self.problems: list[str] = []

    @property
    def ended(self) -> bool:
        return self.status in ENDS.values()

    def take(self, seen: Seen) -> None:
        """One event more, in the order of the stream."""
        if seen.step_id is not None and seen.step_id not in self.steps:
            self.problems.append(f"{seen.type} of a step {seen.step_id} that the workflow has not")
        elif seen.type.startswith("workflow."):
            self._run_event(seen)
        elif seen.type == "signal.received" or seen.type == "timer.fired":
            self._timer(seen)
        elif self.status == "running" and seen.step_id is not None:
            self._step_event(seen, self.steps[seen.step_id], self.workflow.steps[seen.step_id])
        else:
            self.late += 1

    def _run_event(self, seen: Seen) -> None:
        match seen.type, self.status:
            case "workflow.scheduled", "":
                self.status, self.input = "scheduled", seen.payload.get("input")
            case "workflow.started", "" | "scheduled":
                self.status, self.input, self.started = "running", seen.payload.get("input"), seen
                self._enter()
            case "workflow.cancelled", "running" | "scheduled":
                self._end("cancelled")
            case "workflow.completed", "running" if self._all_done():
                self._end("completed")
            case "workflow.failed", "running" if seen.payload.get("resumes", 0) == self.resumes:
                self._end("failed")
            case "workflow.resumed", "failed":
                self._resume()
            case "workflow.completed", "running":
                self.problems.append(f"workflow.completed ({seen.seq}) while steps are open")
            case "workflow.started" | "workflow.scheduled", _:
                self.problems.append(f"{seen.type} ({seen.seq}) of a run that is {self.status} already")
            case _:
                self.late += 1

    def _end(self, status: str) -> None:
        self.status = status
        if status != "completed":
            for step in self.steps.values():
                if step.status == "out" and not (step.ever_began or step.erred):
                    step.unbegun += 1
                if step.status in ("pending", "out"):
                    step.status = "cancelled"

    def _resume(self) -> None:
        self.status, self.doomed, self.resumes = "running", False, self.resumes + 1
        for step in self.steps.values():
            if step.status not in DONE:
                step.status, step.base, step.waits, step.began, step.paused = (
                    "pending",
                    step.attempt,
                    False,
                    False,
                    False,
                )
                step.ever_began = step.erred = False
        self._enter()

    def _enter(self) -> None:
        """It is the turn of each step whose dependencies are done, unless the run is about to fail."""
        for step_id, step in self.steps.items():
            plan = self.workflow.steps[step_id]
            if step.status == "pending" and not self.doomed and self._ready(plan) and not self._skips(plan):
                step.status, step.attempt = "out", step.attempt + 1

    def _skips(self, plan: StepPlan) -> bool:
        """The storm's conditions are all of one kind: a field is true."""
        if plan.skip_if is None:
            return False
        output = self.steps[plan.skip_if.step_id].output
        return isinstance(output, dict) and output.get(plan.skip_if.field) is True

    def _ready(self, plan: StepPlan) -> bool:
        return all(self.steps[dependency].status in DONE for dependency in plan.depends_on)

    def _all_done(self) -> bool:
        return all(step.status in DONE for step in self.steps.values())

    def _step_event(self, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
        if seen.type in ANSWERS and seen.attempt is not None and self._ahead(seen.attempt, seen.iteration or 0, step):
            self.problems.append(f"{seen.type} ({seen.seq}) of an execution of {seen.step_id} that was not ordered yet")
        if seen.type == "step.started" and step.first_seq is None:
            step.first_seq = seen.seq
        if seen.type == "step.skipped":
            self._skipped(seen, step, plan)
        elif seen.type.startswith("approval."):
            self._approval(seen, step, plan)
        elif step.status == "out" and approval_of(plan) is None and self._is_out(seen, step):
            self._answer(seen, step, plan)
        else:
            self.late += 1

    def _ahead(self, attempt: int, iteration: int, step: StepAccount) -> bool:
        execution, last = (iteration, attempt), (step.iteration, step.attempt)
        return execution > last or (step.paused and execution == last)

    def _is_out(self, seen: Seen, step: StepAccount) -> bool:
        if step.paused:
            return False
        if seen.attempt is None:
            return seen.iteration in (None, step.iteration)
        return (seen.attempt, seen.iteration or 0) == (step.attempt, step.iteration)

    def _answer(self, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
        match seen.type:
            case "step.started" if "reply" in (seen.payload or {}):  # what a step responds ends it
                self._complete(seen, step, seen.payload["reply"].get("body"))
            case "step.started":
                step.began = step.ever_began = True
            case "step.completed":
                self._complete(seen, step, seen.payload)
            case "step.failed":
                failure, tries = seen.payload or {}, step.attempt - step.base
                if failure.get("failure_type") == "non_retriable" or tries > plan.retry.retries or self.doomed:
                    self._fail(step)
                else:
                    after = failure.get("failure_type") == "retry_after"
                    pause = failure.get("retry_after_ms", 0) if after else plan.retry.initial_s
                    step.attempt, step.began, step.paused = step.attempt + 1, False, pause > 0
                    step.erred = True
            case "step.continue" if (seen.attempt or step.began) if loop_of(plan) is None else not self.doomed:
                self._continue(seen, step, plan)
            case _:
                self.late += 1

    def _continue(self, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
        bounds = loop_of(plan)
        most = 0 if bounds is None else bounds.iterations_max
        if most is not None and step.iteration + 1 >= most:
            self._fail(step)
        else:
            step.iteration, step.attempt, step.base = step.iteration + 1, 1, 0
            step.inputs[step.iteration] = seen.payload
            step.erred = False
            step.began, step.paused = False, bounds is not None and bounds.delay_s > 0

    def _complete(self, seen: Seen, step: StepAccount, output: Any) -> None:
        step.status, step.output, step.done_seq = "completed", output, seen.seq
        self._enter()

    def _skipped(self, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
        if step.status == "pending" and self._ready(plan):
            step.status, step.done_seq = "skipped", seen.seq
            self._enter()
        else:
            self.late += 1

    def _fail(self, step: StepAccount) -> None:
        step.status, self.doomed = "failed", True

    def _approval(self, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
        current = seen.attempt in (None, step.attempt)
        if approval_of(plan) is None or self.doomed or not current or step.status != "out":
            self.late += 1
        elif seen.type == "approval.requested" and not step.waits:
            step.waits = step.ever_began = True
            step.first_seq = step.first_seq or seen.seq
        elif seen.type != "approval.requested" and step.waits:
            self.decisions.append(seen)
            if seen.type == "approval.granted":
                self._complete(seen, step, seen.payload)
            else:
                self._fail(step)

    def _timer(self, seen: Seen) -> None:
        """A step that waited for its retry is out then. Most others only lead to another event; two of them decide by
        themselves."""
        timer, attempt = (seen.payload or {}).get("timer", ""), (seen.payload or {}).get("attempt") or 0
        if seen.type != "timer.fired" or self.status != "running" or self.doomed:
            return
        if timer == "workflow" and attempt == self.resumes and not self._all_done():
            self.doomed = True
        elif timer.startswith("retry."):
            step_id, _, iteration = timer.removeprefix("retry.").partition("~")
            step = self.steps[step_id]
            step.paused = step.paused and (int(iteration or 0), attempt) != (step.iteration, step.attempt)
        elif timer.startswith("loop."):
            step = self.steps[timer.removeprefix("loop.")]
            if step.status == "out" and attempt == self.resumes:
                self._fail(step)
