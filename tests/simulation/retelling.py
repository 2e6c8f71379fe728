"""What the log of a run says, told again by rules of its own: they know the definition and the events, and nothing of
how the engine decides. What the engine makes of each event is compared with that.

It looks at workflows with more kinds of steps only (workflows.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
from msgspec import UnsetType
from msgspec.structs import replace

from penstock.broker.worker_messages import TaskPayload, decode_input
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.definition.definitions import Retry, Step, WorkflowDef, steps_from_json
from penstock.engine.definition.durations import parse
from penstock.engine.run.events import (
    ChildEnded,
    Event,
    EventReceived,
    PlannerExpanded,
    Record,
    Reply,
    Started,
    StepCompleted,
    StepFacts,
    StepFailed,
    StepSkipped,
    StepStarted,
    TimerFired,
    WorkflowCompleted,
    WorkflowResumed,
    WorkflowStarted,
)
from penstock.engine.run.state import Run, RunStatus, StepState, StepStatus
from penstock.engine.times import instant
from tests.simulation import planned, templates
from tests.simulation.broken import Broken
from tests.simulation.families import Attempt, Families
from tests.simulation.streams import Message, Stream
from tests.simulation.waits import Waits

HANDLER, REFUSED = ".on_failure", "the plan is refused: "
ROUNDED_S = 0.001  # times in events are texts with microseconds
NOTHING_YET = (StepStatus.PENDING, StepStatus.CANCELLED)
OUT = (StepStatus.QUEUED, StepStatus.RUNNING)


class Result(NamedTuple):
    """How one attempt of an execution has ended. `final`: no other follows, unless the run is resumed."""

    attempt: int
    ok: bool
    final: bool
    output: Any = None
    error: str = ""


class Retelling:
    """One run's. `take` is told of each event that has changed the run, `task` of each task of it that was queued."""

    def __init__(self, definition: WorkflowDef, run_id: str, families: Families, events: Stream) -> None:
        self.definition, self.run_id, self._families = definition, run_id, families
        self._waits = Waits(events)
        self.follows = False
        self.steps: dict[str, Step] = {step.id: step for step in definition.steps}
        self.run: Run | None = None
        self.results: dict[str, Result] = {}
        self.skipped: set[str] = set()
        self.items: dict[str, int] = {}
        self.answer: tuple[int, Any] | None = None  # the first response before the first end
        self._has_ended = False
        self._plans: dict[str, Any] = {}
        self._fragments: dict[str, list[str]] = {}
        self._ready_at: dict[str, float] = {}
        self._tries: dict[str, int] = {}
        self._over: set[tuple[str, int]] = set()
        self._out: dict[str, set[str]] = {}
        self._queued: list[tuple[Message, TaskPayload]] = []
        self._unwanted: list[tuple[Message, TaskPayload]] = []

    def take(self, before: Run | None, run: Run, record: Record) -> None:
        """Raises Broken."""
        self.run = run
        event = record.event
        if isinstance(event, WorkflowResumed):
            self._resumed()
        if isinstance(event, WorkflowStarted):
            self.follows = event.payload.failure_of is not None
            self._families.begun(self.run_id, event.payload, record)
        if before is not None and before.status is RunStatus.RUNNING:
            self._hear(before, event, record)
            if run.ended:
                self._finished(before, run, event)
        self._let_go(before, run)
        for step_id, state in run.steps.items():
            old = None if before is None else before.steps.get(step_id)
            if old is not state:
                self._moved(step_id, old or StepState(), state, record)

    def task(self, message: Message, task: TaskPayload) -> None:
        """Raises Broken for a task that nobody should have."""
        step = self._whole(task.step_id)
        assert self.run is not None
        if not _is_out(self.run, task):
            return  # it was sent long ago
        self._queued.append((message, task))
        if is_handler(task.step_id):
            self._check_handled(step, decode_input(task))
            return
        if step.type == "planner":
            former = self.results.get(step.id)
            if task.previous_error != (None if former is None else former.error):
                raise self._broken(f"{step.id} is tried again without being told of {former}")
        wanted = self._input(step, task.item)
        if wanted is not templates.DEFAULT and decode_input(task) != wanted:
            raise self._broken(f"{task.step_id} was given {decode_input(task)}, not {wanted}")
        if task.item is not None:
            self._check_room(step, task.step_id)

    def child(self, attempt: Attempt, started: Started) -> bool:
        """A child was started. Returns whether the attempt still waits for it. Raises Broken."""
        step = self._whole(attempt.step_id)
        assert self.run is not None
        state = self.run.find(attempt.step_id)
        if state is None or state.attempts < attempt.number:
            raise self._broken(f"attempt {attempt.number} of {attempt.step_id} has a child, and was never ordered")
        if started.workflow != (step.config or {})["workflow"]:
            raise self._broken(f"{attempt.step_id} has started a run of {started.workflow}")
        number = None if attempt.step_id in self.steps else int(attempt.step_id.rpartition(".")[2])
        wanted = self._input(step, number)
        if wanted is not templates.DEFAULT and orjson.loads(bytes(started.input)) != wanted:
            raise self._broken(f"the child of {attempt.step_id} was given {started.input!r}, not {wanted}")
        if state.attempts != attempt.number or state.status not in OUT:
            return False
        if number is not None:
            self._check_room(step, attempt.step_id)
        return True

    def follower(self, started: Started) -> None:
        """A run was started because this one has failed. Raises Broken."""
        assert self.run is not None
        wanted = self.definition.on_failure
        if wanted is None or started.workflow != wanted.workflow or self.follows:
            raise self._broken(f"it has failed, and started a run of {started.workflow}")
        given = orjson.loads(bytes(started.input))
        about = (
            given if isinstance(wanted.input, UnsetType) else {**given, "input": orjson.loads(bytes(self.run.input))}
        )
        if (about["run_id"], about["input"]) != (self.run_id, orjson.loads(bytes(self.run.input))):
            raise self._broken(f"the run that follows from its failure was given {given}")

    def saved(self, run: Run, streams: Mapping[str, Stream]) -> None:
        """A snapshot was stored, so everything that followed from the run's end was done. Raises Broken."""
        if self.run is None or run.seq != self.run.seq or run.status not in (RunStatus.FAILED, RunStatus.CANCELLED):
            return
        self._families.check_children(self.run_id)
        for message, task in self._unwanted:
            if streams[message.stream].messages.get(message.seq) is message:
                raise self._broken(f"its task {task.step_id} waits for a worker, and it is {run.status}")

    # What has happened

    def _hear(self, before: Run, event: Event, record: Record) -> None:
        match event:
            case StepStarted(payload=StepFacts(items=int() as total)):
                self.items[event.step_id] = total
            case StepStarted(payload=StepFacts(wake_at=str() as wake_at)):
                self._check_sleep(event.step_id, instant(wake_at))
            case StepStarted(payload=StepFacts(event=str()) as begun):
                self._check_wait(event.step_id, begun)
            case EventReceived():
                self._received(before, event)
            case TimerFired() if event.payload.timer.startswith("wait."):
                self._waited(before, event.payload.step_id or "")
            case StepStarted(payload=StepFacts(child_run_id=str() as child)):
                self._child_begun(before, event, child)
            case ChildEnded():
                self._child_ended(before, event)
            case StepStarted(payload=StepFacts(reply=Reply() as reply)):
                self._responded(before, event.step_id, reply)
            case StepCompleted() if self._is_planner(event.step_id):
                self._planned(before, event)
            case PlannerExpanded():
                self._expanded(before, event)
            case StepCompleted():
                self._completed(before, event)
            case StepFailed():
                self._failed(before, event)
            case StepSkipped():
                self.skipped.add(event.step_id)
            case TimerFired() if event.payload.timer.startswith("sleep."):
                step_id = event.payload.step_id or ""
                self._check_awake(step_id, record)
                self._ended(step_id, Result(before.step(step_id).attempts, ok=True, final=True))

    def _resumed(self) -> None:
        """What has failed begins again, but for elements of maps that went on without them."""
        self._tries.clear()
        self._out.clear()
        kept = {item for step_id in self.items if self.is_done(step_id) for item in self._items_of(step_id)}
        self.results = {one: result for one, result in self.results.items() if result.ok or one in kept}
        self._families.resumed(self.run_id)

    def _completed(self, before: Run, event: StepCompleted) -> None:
        attempt = event.attempt_number or before.step(event.step_id).attempts
        given = b"null" if isinstance(event.payload, UnsetType) else bytes(event.payload)
        if len(given) > PAYLOAD_BYTES_MAX:
            error = f"the output has {len(given)} bytes, {PAYLOAD_BYTES_MAX} is the most"
            self._ended(event.step_id, Result(attempt, ok=False, final=True, error=error))
        else:
            self._ended(event.step_id, Result(attempt, ok=True, final=True, output=orjson.loads(given)))

    def _responded(self, before: Run, step_id: str, reply: Reply) -> None:
        step = self.steps[step_id]
        config, scope = step.config or {}, self._scope(step)
        wanted = (templates.evaluated(config["status"], scope), templates.evaluated(config["body"], scope))
        body = orjson.loads(bytes(reply.body))
        if (reply.status, body) != wanted:
            raise self._broken(f"{step_id} responds {reply.status} {body}, not {wanted}")
        if self.answer is None and not self._has_ended:
            self.answer = wanted
        self._ended(step_id, Result(before.step(step_id).attempts, ok=True, final=True, output=body))

    def _is_planner(self, step_id: str) -> bool:
        return step_id in self.steps and self.steps[step_id].type == "planner"

    def _planned(self, before: Run, event: StepCompleted) -> None:
        """The worker of a planner has returned something, which is not part of the run yet."""
        given = b"null" if isinstance(event.payload, UnsetType) else bytes(event.payload)
        if len(given) > PAYLOAD_BYTES_MAX:
            self._completed(before, event)
        else:
            self._plans[event.step_id] = orjson.loads(given)

    def _expanded(self, before: Run, event: PlannerExpanded) -> None:
        """Its steps are part of the run from now on: they may depend on one another."""
        within, plan = event.step_id, self._plans.pop(event.step_id)
        steps = steps_from_json(bytes(event.payload.steps))
        if planned.is_refused(plan) or [step.id for step in steps] != [step["id"] for step in plan["steps"]]:
            raise self._broken(f"{within} has got the steps {[step.id for step in steps]} by the plan {plan}")
        self._over.add((within, before.step(within).attempts))
        self._fragments[within] = [f"{within}.{step.id}" for step in steps]
        for step in steps:
            needed = tuple(f"{within}.{name}" for name in step.depends_on)
            self.steps[f"{within}.{step.id}"] = replace(step, id=f"{within}.{step.id}", depends_on=needed)

    def _lasts(self, step_id: str) -> list[str]:
        inner = self._fragments[step_id]
        needed = {one for other in inner for one in self.steps[other].depends_on}
        return [one for one in inner if one not in needed]

    def _output_of_plan(self, step_id: str) -> Any:
        lasts = self._lasts(step_id)
        if len(lasts) < 2:
            return self.output(lasts[0]) if lasts else None
        return {one.rpartition(".")[2]: self.output(one) for one in lasts}

    def _failed(self, before: Run, event: StepFailed) -> None:
        attempt = event.attempt_number or before.step(event.step_id).attempts
        plan = self._plans.pop(event.step_id, None)
        if event.payload.error.startswith(REFUSED) is not (plan is not None and planned.is_refused(plan)):
            raise self._broken(f"{event.step_id} has failed by its plan {plan}: {event.payload.error}")
        hopeless = event.payload.failure_type == "non_retriable" or before.failing
        self._tried(event.step_id, attempt, event.payload.error, hopeless=hopeless)

    def _tried(self, step_id: str, attempt: int, error: str, *, hopeless: bool) -> None:
        """An attempt has failed; another one follows if the step may have it."""
        tries = self._tries[step_id] = self._tries.get(step_id, 0) + 1
        final = hopeless or tries > self._retries(step_id)
        self._ended(step_id, Result(attempt, ok=False, final=final, error=error))

    def _child_begun(self, before: Run, event: StepStarted, child: str) -> None:
        attempt = Attempt(self.run_id, event.step_id, before.step(event.step_id).attempts)
        if (known := self._families.child_of.get(attempt)) != child:
            raise self._broken(f"{event.step_id} says that its child is {child}, and has started {known}")
        if self._is_detached(event.step_id):
            self._ended(event.step_id, Result(attempt.number, ok=True, final=True, output={"run_id": child}))

    def _child_ended(self, before: Run, event: ChildEnded) -> None:
        attempt, told = Attempt(self.run_id, event.step_id, before.step(event.step_id).attempts), event.payload
        self._families.check_end(attempt, told)
        if told.status == RunStatus.COMPLETED:
            output = None if isinstance(told.output, UnsetType) else orjson.loads(bytes(told.output))
            self._ended(event.step_id, Result(attempt.number, ok=True, final=True, output=output))
        else:
            hopeless = told.status != RunStatus.FAILED or before.failing
            error = f"child run {told.run_id} {'was' if hopeless else 'failed:'} {told.error or told.status}"
            self._tried(event.step_id, attempt.number, error, hopeless=hopeless)

    def _check_wait(self, step_id: str, begun: StepFacts) -> None:
        """What a step waits for, and from when on: that is written down when it begins to."""
        config = self.steps[step_id].config or {}
        wait = self._waits.begun(step_id, config, self._ready_at[step_id], self.run_id, self._before(step_id))
        told = (instant(begun.since or ""), None if begun.until is None else instant(begun.until))
        for wanted, found in zip((wait.since, wait.until), told, strict=True):
            if (wanted is None) is not (found is None) or abs((wanted or 0.0) - (found or 0.0)) > ROUNDED_S:
                raise self._broken(f"{step_id} waits from {told[0]} to {told[1]}, not {wait.since} to {wait.until}")

    def _received(self, before: Run, event: EventReceived) -> None:
        if problem := self._waits.problem_with(event.step_id, event.payload.seq, bytes(event.payload.body)):
            raise self._broken(problem)
        self._waits.completed[event.step_id] = event.payload.seq
        output = orjson.loads(bytes(event.payload.body))
        self._ended(event.step_id, Result(before.step(event.step_id).attempts, ok=True, final=True, output=output))

    def _waited(self, before: Run, step_id: str) -> None:
        """The time of a wait is over."""
        if (missed := self._waits.first(step_id)) is not None:
            raise self._broken(f"{step_id} has waited in vain, and event {missed} came in time")
        goes_on = (self.steps[step_id].config or {}).get("on_timeout") == "continue"
        attempt, error = before.step(step_id).attempts, "" if goes_on else "nothing came"
        self._ended(step_id, Result(attempt, ok=goes_on, final=True, error=error))

    def _before(self, step_id: str) -> set[str]:
        """The steps that this one depends on, directly or not."""
        found: set[str] = set()
        ahead = list(self.steps[step_id].depends_on)
        while ahead:
            found.add(one := ahead.pop())
            ahead += self.steps[one].depends_on
        return found

    def _finished(self, before: Run, run: Run, event: Event) -> None:
        output = orjson.loads(bytes(event.payload.output)) if isinstance(event, WorkflowCompleted) else None
        self._has_ended = True
        self._families.finished(run, output)
        if run.status is not RunStatus.COMPLETED:
            self._unwanted = [one for one in self._queued if _is_out(before, one[1])]

    def _let_go(self, before: Run | None, run: Run) -> None:
        """The attempts that were out, and are not any more: of steps, and of elements, that start runs."""
        for step_id in () if before is None else self._parents():
            for one in self._executions(step_id):
                old, new = before.find(one), run.find(one)
                if old is None or old.status not in OUT:
                    continue
                if new is None or new.attempts != old.attempts or new.status not in OUT:
                    attempt = Attempt(self.run_id, one, old.attempts)
                    self._families.over(attempt, detached=self._is_detached(one))

    def _parents(self) -> list[str]:
        return [step.id for step in self.steps.values() if "workflow" in (step.config or {})]

    def _executions(self, step_id: str) -> list[str]:
        if self.steps[step_id].type != "map":
            return [step_id]
        return self._items_of(step_id) if step_id in self.items else []

    def _is_detached(self, step_id: str) -> bool:
        return bool((self._whole(step_id).config or {}).get("detach"))

    def _ended(self, step_id: str, result: Result) -> None:
        """An attempt has ended, for the first and only time."""
        former = self.results.get(step_id)
        if (step_id, result.attempt) in self._over or (former is not None and former.final):
            raise self._broken(f"attempt {result.attempt} of {step_id} has ended after its end: {result}")
        self._over.add((step_id, result.attempt))
        self._out.get(step_id.rpartition(".")[0], set()).discard(step_id)
        self.results[step_id] = result

    # What the engine makes of it

    def _moved(self, step_id: str, old: StepState, new: StepState, record: Record) -> None:
        begins = new.status in OUT and old.status not in OUT
        if begins or (old.status in NOTHING_YET and new.status not in NOTHING_YET):
            self._check_ready(step_id)
            self._ready_at[step_id] = record.at
        if old.status is new.status or is_handler(step_id):
            return
        if new.status is StepStatus.SKIPPED or old.status is StepStatus.QUEUED:
            self._check_condition(step_id, new)
        if new.status in (StepStatus.COMPLETED, StepStatus.RECOVERED):
            self._check_completed(step_id, new)

    def _check_ready(self, step_id: str) -> None:
        if is_handler(step_id):
            if not self._has_failed(step_id.removesuffix(HANDLER)):
                raise self._broken(f"{step_id} begins, and the step can still be tried")
            return
        for needed in self.steps[step_id].depends_on:
            if not self.is_done(needed):
                raise self._broken(f"{step_id} begins before {needed} is done")

    def _check_condition(self, step_id: str, new: StepState) -> None:
        """A step begins, or is skipped, as its condition says; one that cannot be evaluated fails it."""
        step = self.steps[step_id]
        if step.when is None or new.status is StepStatus.CANCELLED:
            return
        wanted = templates.holds(step.when, self._scope(step))
        skipped = new.status is StepStatus.SKIPPED
        if wanted is None and new.status is not StepStatus.FAILED:
            raise self._broken(f"the condition of {step_id} fails, and it is {new.status}")
        if wanted is not None and skipped is wanted:
            raise self._broken(f"{step_id} is {new.status}, and its condition says {wanted}")

    def _check_completed(self, step_id: str, new: StepState) -> None:
        recovered = new.status is StepStatus.RECOVERED
        if not self.is_done(step_id) or recovered is not self._is_recovered(step_id):
            raise self._broken(f"{step_id} is {new.status}, and the log does not say so")
        if not isinstance(new.output, UnsetType) and (told := orjson.loads(bytes(new.output))) != self.output(step_id):
            raise self._broken(f"{step_id} has the output {told}, not {self.output(step_id)}")

    def _check_sleep(self, step_id: str, wake_at: float) -> None:
        config = self.steps[step_id].config or {}
        if "until" in config:
            wanted = templates.time_of(config["until"])
        else:
            duration = templates.evaluated(config["duration"], self._scope(self.steps[step_id]))
            wanted = self._ready_at[step_id] + parse(duration)
        if abs(wanted - wake_at) > ROUNDED_S:
            raise self._broken(f"{step_id} sleeps {wake_at - wanted:.3f} s too long")

    def _check_awake(self, step_id: str, record: Record) -> None:
        assert self.run is not None
        config = self.steps[step_id].config or {}
        if "duration" not in config:
            wanted = templates.time_of(config["until"])
        else:
            duration = templates.evaluated(config["duration"], self._scope(self.steps[step_id]))
            wanted = self._ready_at[step_id] + parse(duration)
        if record.at < wanted - ROUNDED_S:
            raise self._broken(f"{step_id} has slept {wanted - record.at:.3f} s too short")

    def _check_handled(self, step: Step, given: Any) -> None:
        """What a handler is given."""
        assert self.run is not None
        handler = step.on_failure
        assert handler is not None
        if not isinstance(handler.input, UnsetType):
            wanted = {"failed": step.id, "of": self.definition.name}
            if given != wanted:
                raise self._broken(f"the handler of {step.id} was given {given}, not {wanted}")
            return
        attempts = self.run.steps[step.id].attempts
        if (given["step"], given["attempts"]) != (step.id, attempts) or not given["error"]:
            raise self._broken(f"the handler of {step.id} was given {given}, after {attempts} attempts")

    def _check_room(self, step: Step, item: str) -> None:
        """No more elements are out than the map says."""
        out = self._out.setdefault(step.id, set())
        out.add(item)
        most = (step.config or {}).get("max_concurrency")
        if most is not None and len(out) > most:
            raise self._broken(f"of {step.id}, {sorted(out)} are out, and max_concurrency is {most}")

    # What is so by the log

    def is_done(self, step_id: str) -> bool:
        """Whether whoever depends on the step may begin."""
        step = self.steps.get(step_id)
        if step_id in self.skipped or self._is_recovered(step_id):
            return True
        if step is not None and step.type == "planner":
            return step_id in self._fragments and all(map(self.is_done, self._fragments[step_id]))
        if step is not None and step.type == "map":
            return step_id in self.items and all(self._item_is_done(step, item) for item in self._items_of(step_id))
        result = self.results.get(step_id)
        return result is not None and result.ok

    def output(self, step_id: str) -> Any:
        """The output of a step that is done."""
        step = self.steps.get(step_id)
        if step_id in self.skipped:
            return None
        if self._is_recovered(step_id):
            return self.results[step_id + HANDLER].output
        if step is not None and step.type == "planner":
            return self._output_of_plan(step_id)
        if step is not None and step.type == "map":
            wraps = _continues(step)
            return [_element(self.results[item], wraps) for item in self._items_of(step_id)]
        return self.results[step_id].output

    def _is_recovered(self, step_id: str) -> bool:
        handled = self.results.get(step_id + HANDLER)
        return handled is not None and handled.ok

    def _has_failed(self, step_id: str) -> bool:
        """Whether no attempt of the step, or of the element with which it fails, is left."""
        executions = [step_id, *(self._items_of(step_id) if step_id in self.items else ())]
        results = [result for one in executions if (result := self.results.get(one)) is not None]
        return any(result.final and not result.ok for result in results)

    def _items_of(self, step_id: str) -> list[str]:
        return [f"{step_id}.{number}" for number in range(self.items[step_id])]

    def _item_is_done(self, step: Step, item: str) -> bool:
        result = self.results.get(item)
        return result is not None and (result.ok or (result.final and _continues(step)))

    def _input(self, step: Step, item: int | None) -> Any:
        given = step.input
        scope = self._scope(step)
        if item is None:
            return templates.DEFAULT if isinstance(given, UnsetType) else templates.evaluated(_json(given), scope)
        array = templates.evaluated((step.config or {})["items"], scope)
        scope = {**scope, "item": array[item], "index": item}
        return scope["item"] if isinstance(given, UnsetType) else templates.evaluated(_json(given), scope)

    def _scope(self, step: Step) -> Mapping[str, Any]:
        scope: dict[str, Any] = {
            "run.id": self.run_id,
            "run.workflow": self.definition.name,
            "run.version": self.definition.version,
        }
        for needed in step.depends_on:
            if self.is_done(needed):
                name = needed.rpartition(".")[2]  # as a plan calls it
                scope[f"steps.{name}.output"] = self.output(needed)
                scope[f"steps.{name}.status"] = self._status(needed)
        return scope

    def _status(self, step_id: str) -> str:
        if step_id in self.skipped:
            return "skipped"
        return "recovered" if self._is_recovered(step_id) else "completed"

    def _whole(self, step_id: str) -> Step:
        """The step, or the map that this is an element of."""
        return self.steps.get(step_id) or self.steps[step_id.rpartition(".")[0]]

    def _retries(self, step_id: str) -> int:
        step = self._whole(step_id)
        handler = step.on_failure if is_handler(step_id) else None
        declared: Retry | None = (step if handler is None else handler).retry or self.definition.default_retry
        if step_id in self.steps and step.type == "map":
            return 0
        return 0 if declared is None else declared.max_attempts

    def _broken(self, what: str) -> Broken:
        return Broken(f"retold: {what}", self.run_id)


def is_handler(step_id: str) -> bool:
    return step_id.endswith(HANDLER)


def _is_out(run: Run, task: TaskPayload) -> bool:
    state = run.find(task.step_id)
    return state is not None and state.attempts == task.attempt and state.status in OUT


def _continues(step: Step) -> bool:
    return (step.config or {}).get("on_item_failure") == "continue"


def _element(result: Result, wraps: bool) -> Any:
    if not wraps:
        return result.output
    return {"ok": True, "output": result.output} if result.ok else {"ok": False, "error": result.error}


def _json(given: Any) -> Any:
    return orjson.loads(bytes(given))
