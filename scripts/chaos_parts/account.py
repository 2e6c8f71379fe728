"""What a run's history means, worked out a second time: apart from the engine, by the words of the documentation.

It does not use `advance`, so that an error there shows as a difference. It knows nothing of commands: which event
counts, and what it leaves behind, is all. Here is the run as a whole; what an event means to a step is in
step_events.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.engine.run.kinds.map import Mapped
from penstock.engine.run.workflow import StepPlan, Workflow

from . import pausing, slots, step_events, taking
from .compensation import Compensation, announced, begin, has_work, undone
from .conditions import skips
from .fragments import fragment_plans, lasts
from .pausing import Pause
from .slots import Slots
from .step_account import DONE, Begun, Seen, StepAccount, numbered

ENDS = {"workflow.completed": "completed", "workflow.failed": "failed", "workflow.cancelled": "cancelled"}


class Account:
    """Owned by the checker; one a run. `problems` are events that nobody should have written, or not then. `failures`
    are the events by which it has failed, `begun` what the engine has begun without a worker,
    `plans` those of all steps and handlers that there are. `pause` is there while it is paused, `last_pause` also
    later, `pauses` counts them. `taking` are the steps of another run that it is still to take over. `slots` are those
    of its limits."""

    def __init__(self, workflow: Workflow, run_id: str = "") -> None:
        self.workflow, self.run_id = workflow, run_id
        self.status = ""
        self.plans: dict[str, StepPlan] = dict(workflow.steps)
        self.steps: dict[str, StepAccount] = {step_id: StepAccount() for step_id in workflow.steps}
        self.names: dict[str, Mapping[str, str]] = {}
        self.input: Any = None
        self.resumes = 0
        self.doomed = False
        self.started: Seen | None = None
        self.ended_by: Seen | None = None
        self.compensation: Compensation | None = None
        self.failures: list[Seen] = []
        self.begun: list[Begun] = []
        self.decisions: list[Seen] = []
        self.pause: Pause | None = None
        self.last_pause: Pause | None = None
        self.pauses = 0
        self.taking: set[str] | None = None
        self.slots = Slots()
        self.removed = False
        self.late = 0
        self.problems: list[str] = []

    @property
    def ended(self) -> bool:
        return self.status in ENDS.values()

    def origin(self, name: str) -> Any:
        """What the run's first event says of where it comes from: `parent`, `failure_of`, `trigger`, `rerun_of`."""
        return None if self.started is None else self.started.payload.get(name)

    def find(self, step_id: str) -> tuple[StepAccount, StepPlan] | None:
        """A step, an element of a map (`m.7`), or a handler that there is already."""
        if step_id in self.steps:
            return self.steps[step_id], self.plans[step_id]
        map_id, _, number = step_id.rpartition(".")
        whole = self.steps.get(map_id)
        each = self.plans[map_id].each if whole is not None else None
        if whole is None or each is None or not number.isdecimal() or int(number) >= len(whole.elements or ()):
            return None
        assert whole.elements is not None
        return whole.elements[int(number)], replace(each, id=step_id, item=int(number))

    def found(self, step_id: str) -> tuple[StepAccount, StepPlan]:
        """As `find`, of one that is there. Raises KeyError."""
        found = self.find(step_id)
        if found is None:
            raise KeyError(step_id)
        return found

    def executions(self) -> Iterator[tuple[str, StepAccount]]:
        """Steps, handlers and elements."""
        for step_id, step in self.steps.items():
            yield step_id, step
            yield from numbered(step_id, step)

    def take(self, seen: Seen) -> None:
        """One event more, in the order of the stream."""
        self._take(seen)
        if self.slots.open:
            slots.settle(self, seen)

    def _take(self, seen: Seen) -> None:
        found = None if seen.step_id is None else self.find(seen.step_id)
        if seen.step_id is not None and self.taking is not None and self.status in ("running", "pending"):
            taking.take(self, seen, *(found or (None, None)))
        elif seen.step_id is not None and found is None:
            self.problems.append(f"{seen.type} of a step {seen.step_id} that the workflow has not")
        elif self.removed:  # nothing follows
            self.late += 1
        elif seen.type.startswith("workflow."):
            self._run_event(seen)
        elif seen.type.startswith("limit."):
            slots.take(self, seen)
        elif seen.type == "step.overridden" and self.status == "pending":
            slots.completed_by_hand(self, seen)
        elif seen.type == "signal.received" or seen.type == "timer.fired":
            self._timer(seen)
        elif self.status in ("running", "compensating") and found is not None:
            step_events.take(self, seen, *found)
        else:
            self.late += 1

    def _run_event(self, seen: Seen) -> None:
        match seen.type, self.status:
            case "workflow.scheduled", "":
                self.status, self.input = "scheduled", seen.payload.get("input")
            case "workflow.paused", _:
                pausing.pause(self, seen)
            case "workflow.removed", _ if self.ended:
                self.removed = True
            case "workflow.unpaused", _:
                pausing.go_on(self, seen)
            case "workflow.started", "scheduled" if self.pause is not None:
                self.pause.start = self.pause.start or seen
            case "workflow.started", "" | "scheduled":
                self._start(seen)
            case "workflow.cancelled", "running" if (seen.payload or {}).get("compensate") and has_work(self):
                self.pause = None
                begin(self, seen, "cancelled")
            case "workflow.cancelled", "running" | "scheduled" | "pending":
                self._end("cancelled", seen)
            case "workflow.compensating", "compensating":
                announced(self, seen)
            case "workflow.failed" | "workflow.cancelled", "compensating":
                self._end_of_compensation(seen)
            case "workflow.completed", "running" if self.all_done():
                self._end("completed", seen)
            case "workflow.failed", "running" if seen.payload.get("resumes", 0) == self.resumes:
                if not self.doomed:
                    self.problems.append(f"workflow.failed ({seen.seq}) while nothing has failed")
                if has_work(self):
                    begin(self, seen, "failed")
                else:
                    self._end("failed", seen)
            case "workflow.failed", "pending" if seen.payload.get("resumes", 0) == self.resumes:
                self._end("failed", seen)  # what it asks its limits for cannot be worked out
            case "workflow.resumed", "failed" if self.compensation is None:
                self._resume(seen)
            case "workflow.completed", "running":
                self.problems.append(f"workflow.completed ({seen.seq}) while steps are open")
            case "workflow.started" | "workflow.scheduled", _:
                self.problems.append(f"{seen.type} ({seen.seq}) of a run that is {self.status} already")
            case _:
                self.late += 1

    def _start(self, seen: Seen) -> None:
        self.input, self.started = seen.payload.get("input"), seen
        self.taking = taking.announced(seen)
        self.begin_or_wait(seen)

    def begin_or_wait(self, seen: Seen) -> None:
        """It begins at once, or when it has its slots."""
        self.status = "pending"
        if self.workflow.slots is None:
            slots.begin(self, seen)

    def _end_of_compensation(self, seen: Seen) -> None:
        assert self.compensation is not None
        if self.compensation.is_end(seen):
            self._end(self.compensation.ends, seen)
        else:
            self.late += 1

    def _end(self, status: str, seen: Seen) -> None:
        self.status, self.ended_by, self.pause = status, seen, None
        if status == "failed":
            self.failures.append(seen)
        if status != "completed":
            for step in self.steps.values():
                step.cancel()

    def _resume(self, seen: Seen) -> None:
        self.status, self.doomed, self.resumes, self.slots.resumed = "pending", False, self.resumes + 1, seen
        if self.workflow.slots is None:
            slots.begin(self, seen)

    def go_on(self, seen: Seen, held: str | None) -> None:
        """After its failure. What somebody completes by hand next does not begin; of a handler, the step that it
        follows stays failed."""
        self.status = "running"
        handled = self.plans[held].handles if held in self.plans else None
        for step_id, step in self.steps.items():
            if step_id != handled:
                step.reset()
        self.enter(seen, held)

    def _timer(self, seen: Seen) -> None:
        if seen.type != "timer.fired" or self.status not in ("running", "compensating") or self.doomed:
            return
        timer, attempt = (seen.payload or {}).get("timer", ""), (seen.payload or {}).get("attempt") or 0
        if timer.partition("+")[0] == "workflow":
            current = self.pause is None and int(timer.partition("+")[2] or 0) == self.pauses
            if current and self.status == "running" and attempt == self.resumes and not self.all_done():
                self._doom(seen)
            return
        self.fire(seen, None)

    def fire(self, seen: Seen, moment: Seen | None) -> None:
        """A timer of a step; `moment` is the event by which it takes effect after a pause."""
        timer, attempt = seen.payload.get("timer", ""), seen.payload.get("attempt") or 0
        kind, _, rest = timer.partition(".")
        step_id, _, iteration = rest.partition("+")[0].partition("~")
        if (found := self.find(step_id)) is None or pausing.keeps_timer(self, seen, kind, found[0]):
            return
        if not self.doomed and self.status in ("running", "compensating"):
            step_events.take_timer(self, moment or seen, kind, attempt, int(iteration or 0), *found)

    def _doom(self, seen: Seen) -> None:
        """The run is about to fail, at once or when it has undone its steps."""
        if has_work(self):
            begin(self, seen, "failed")
        else:
            self.doomed = True

    def enter(self, seen: Seen, held: str | None = None) -> None:
        """It is the turn of each step whose dependencies are done, unless the run is about to fail, or has to take over
        steps first."""
        if self.status == "compensating" or self.taking is not None:
            return
        for step_id, step in self.steps.items():
            plan = self.plans[step_id]
            waits = step.status == "pending" and not self.doomed and plan.handles is None and step_id != held
            if waits and self.ready(plan) and not skips(plan, self.steps):
                step.order(seen)

    def ready(self, plan: StepPlan) -> bool:
        return all(self.steps[dependency].status in DONE for dependency in plan.depends_on)

    def all_done(self) -> bool:
        return all(step.status in DONE for step in self.steps.values() if step.handles is None)

    def complete(self, seen: Seen, step: StepAccount, plan: StepPlan, output: Any) -> None:
        step.status, step.output, step.done_seq = "completed", output, seen.seq
        if plan.kind.name == "compensate":
            undone(self, seen, failed=False)
        elif plan.item is not None:
            self._go_on(seen, _map_id(plan))
        elif plan.handles is not None:
            recovered = self.steps[plan.handles]
            recovered.status, recovered.output, recovered.done_seq = "recovered", output, seen.seq
            self._follow(seen, plan.handles)
        else:
            self._follow(seen, plan.id)

    def skip(self, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
        step.status, step.done_seq = "skipped", seen.seq
        self._follow(seen, plan.id)

    def fail(self, seen: Seen, step: StepAccount, plan: StepPlan, error: str) -> None:
        """It has failed for good. The run is about to fail with it, unless the definition says what follows."""
        step.status, step.error = "failed", error
        if self.doomed:
            return
        if plan.kind.name == "compensate":
            undone(self, seen, failed=True)
        elif plan.on_failure is not None:
            self.plans[plan.on_failure.id] = plan.on_failure
            handler = self.steps.setdefault(plan.on_failure.id, StepAccount(handles=plan.id))
            handler.order(seen)
            handler.causes[handler.attempt] = error, step.attempt
        elif plan.item is None:
            self._doom(seen)
        elif plan.tolerated:
            self._go_on(seen, _map_id(plan))
        else:
            whole = self.steps[_map_id(plan)]
            for element in whole.elements or ():
                element.cancel()
            self.fail(seen, whole, self.plans[_map_id(plan)], f"element {plan.item} failed: {error}")

    def begin_elements(self, seen: Seen, step: StepAccount, plan: StepPlan, count: int) -> None:
        """A map knows how many elements it has. When it begins again, it still has those that have completed."""
        if step.elements is None or len(step.elements) != count:
            step.elements = [StepAccount() for _ in range(count)]
        self._go_on(seen, plan.id)

    def insert(self, seen: Seen, step: StepAccount, plan: StepPlan, steps: Sequence[Mapping[str, Any]]) -> None:
        """The steps of a planner's plan are part of the run from now on."""
        if self.add_fragment(step, plan, steps):
            self.enter(seen)
        else:
            self.complete(seen, step, plan, None)

    def add_fragment(self, step: StepAccount, plan: StepPlan, steps: Sequence[Mapping[str, Any]]) -> bool:
        """As `insert`, but none of them begins. False: there are none."""
        around = self.names[plan.planner] if plan.planner else {step_id: step_id for step_id in self.workflow.steps}
        plans, step.fragment = fragment_plans(self.workflow, plan.id, steps, around)
        self.plans.update(plans)
        self.names[plan.id] = {**around, **step.fragment}
        self.steps.update({step_id: StepAccount() for step_id in plans})
        return bool(plans)

    def _go_on(self, seen: Seen, map_id: str) -> None:
        """Elements whose turn it is now; or the map has completed."""
        whole, plan = self.steps[map_id], self.plans[map_id]
        elements, bounds = whole.elements or [], plan.config
        assert isinstance(bounds, Mapped)
        if self.doomed:
            return
        if all(element.status in ("completed", "failed") for element in elements):
            self.complete(seen, whole, plan, [element.result(bounds.continues) for element in elements])
            return
        for element in elements:
            if element.status == "pending" and sum(one.status == "out" for one in elements) < bounds.concurrency:
                element.order(seen)

    def _follow(self, seen: Seen, step_id: str) -> None:
        """What follows when a step is done: its planner may be, and it is the turn of others."""
        planner_id = self.plans[step_id].planner
        if planner_id is not None:
            planner = self.steps[planner_id]
            last = lasts(self.plans, planner.fragment or {})
            if planner.status == "out" and all(self.steps[one].status in DONE for one in last.values()):
                outputs = {name: self.steps[one].output for name, one in last.items()}
                output = outputs if len(outputs) > 1 else next(iter(outputs.values()))
                self.complete(seen, planner, self.plans[planner_id], output)
        self.enter(seen)


def _map_id(plan: StepPlan) -> str:
    return plan.id.rpartition(".")[0]
