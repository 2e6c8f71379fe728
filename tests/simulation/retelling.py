"""What the log of a run says, told again by rules of its own: they know the definition and the events, and nothing of
how the engine decides. What the engine makes of each event is compared with that.

It looks at workflows with more kinds of steps only (workflows.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
from msgspec import UnsetType

from penstock.broker.worker_messages import TaskPayload, decode_input
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.definition.definitions import Retry, Step, WorkflowDef
from penstock.engine.definition.durations import parse
from penstock.engine.run.events import (
    Event,
    Record,
    StepCompleted,
    StepFacts,
    StepFailed,
    StepSkipped,
    StepStarted,
    TimerFired,
    WorkflowResumed,
)
from penstock.engine.run.state import Run, RunStatus, StepState, StepStatus
from penstock.engine.times import instant
from tests.simulation import templates
from tests.simulation.broken import Broken
from tests.simulation.streams import Message, Stream

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

    def __init__(self, definition: WorkflowDef, run_id: str) -> None:
        self.definition, self.run_id = definition, run_id
        self.steps: dict[str, Step] = {step.id: step for step in definition.steps}
        self.run: Run | None = None
        self.results: dict[str, Result] = {}
        self.skipped: set[str] = set()
        self.items: dict[str, int] = {}
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
            self._tries.clear()
            self._out.clear()
            self.results = {step_id: result for step_id, result in self.results.items() if result.ok}
        if before is not None and before.status is RunStatus.RUNNING:
            self._hear(before, event, record)
            if run.status in (RunStatus.FAILED, RunStatus.CANCELLED):
                self._unwanted = [one for one in self._queued if _is_out(before, one[1])]
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
        wanted = self._input(step, task)
        if wanted is not templates.DEFAULT and decode_input(task) != wanted:
            raise self._broken(f"{task.step_id} was given {decode_input(task)}, not {wanted}")
        if task.item is not None:
            self._check_room(step, task.step_id)

    def saved(self, run: Run, streams: Mapping[str, Stream]) -> None:
        """A snapshot was stored, so everything that followed from the run's end was done. Raises Broken."""
        if self.run is None or run.seq != self.run.seq or run.status not in (RunStatus.FAILED, RunStatus.CANCELLED):
            return
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

    def _completed(self, before: Run, event: StepCompleted) -> None:
        attempt = event.attempt_number or before.step(event.step_id).attempts
        given = b"null" if isinstance(event.payload, UnsetType) else bytes(event.payload)
        if len(given) > PAYLOAD_BYTES_MAX:
            error = f"the output has {len(given)} bytes, {PAYLOAD_BYTES_MAX} is the most"
            self._ended(event.step_id, Result(attempt, ok=False, final=True, error=error))
        else:
            self._ended(event.step_id, Result(attempt, ok=True, final=True, output=orjson.loads(given)))

    def _failed(self, before: Run, event: StepFailed) -> None:
        attempt = event.attempt_number or before.step(event.step_id).attempts
        tries = self._tries[event.step_id] = self._tries.get(event.step_id, 0) + 1
        final = event.payload.failure_type == "non_retriable" or tries > self._retries(event.step_id) or before.failing
        self._ended(event.step_id, Result(attempt, ok=False, final=final, error=event.payload.error))

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
        if old.status in NOTHING_YET and new.status not in NOTHING_YET:
            self._check_ready(step_id)
            self._ready_at[step_id] = record.at
        if old.status is new.status:
            return
        if new.status is StepStatus.SKIPPED or old.status is StepStatus.QUEUED:
            self._check_condition(step_id, new)
        if new.status is StepStatus.COMPLETED:
            self._check_completed(step_id, new)

    def _check_ready(self, step_id: str) -> None:
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
        if not self.is_done(step_id):
            raise self._broken(f"{step_id} has completed, and the log does not say so")
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
        if step_id in self.skipped:
            return True
        if step is not None and step.type == "map":
            return step_id in self.items and all(self._item_is_done(step, item) for item in self._items_of(step_id))
        result = self.results.get(step_id)
        return result is not None and result.ok

    def output(self, step_id: str) -> Any:
        """The output of a step that is done."""
        step = self.steps.get(step_id)
        if step_id in self.skipped:
            return None
        if step is not None and step.type == "map":
            wraps = _continues(step)
            return [_element(self.results[item], wraps) for item in self._items_of(step_id)]
        return self.results[step_id].output

    def _items_of(self, step_id: str) -> list[str]:
        return [f"{step_id}.{number}" for number in range(self.items[step_id])]

    def _item_is_done(self, step: Step, item: str) -> bool:
        result = self.results.get(item)
        return result is not None and (result.ok or (result.final and _continues(step)))

    def _input(self, step: Step, task: TaskPayload) -> Any:
        given = step.input
        scope = self._scope(step)
        if task.item is None:
            return templates.DEFAULT if isinstance(given, UnsetType) else templates.evaluated(_json(given), scope)
        array = templates.evaluated((step.config or {})["items"], scope)
        scope = {**scope, "item": array[task.item], "index": task.item}
        return scope["item"] if isinstance(given, UnsetType) else templates.evaluated(_json(given), scope)

    def _scope(self, step: Step) -> Mapping[str, Any]:
        scope: dict[str, Any] = {
            "run.id": self.run_id,
            "run.workflow": self.definition.name,
            "run.version": self.definition.version,
        }
        for needed in step.depends_on:
            if self.is_done(needed):
                scope[f"steps.{needed}.output"] = self.output(needed)
                scope[f"steps.{needed}.status"] = "skipped" if needed in self.skipped else "completed"
        return scope

    def _whole(self, step_id: str) -> Step:
        """The step, or the map that this is an element of."""
        return self.steps.get(step_id) or self.steps[step_id.rpartition(".")[0]]

    def _retries(self, step_id: str) -> int:
        step = self._whole(step_id)
        declared: Retry | None = step.retry or self.definition.default_retry
        if step_id in self.steps and step.type == "map":
            return 0
        return 0 if declared is None else declared.max_attempts

    def _broken(self, what: str) -> Broken:
        return Broken(f"retold: {what}", self.run_id)


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
