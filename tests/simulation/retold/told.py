"""What is so by the log of one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson
from msgspec import UnsetType

from penstock.engine.definition.definitions import HandlerDef, Step, WorkflowDef
from penstock.engine.definition.durations import parse
from penstock.engine.run.event_payloads import TakenStep
from penstock.engine.run.events import (
    Event,
    Record,
    StepCompleted,
    StepContinue,
    StepFailed,
    StepStarted,
    TimerFired,
)
from penstock.engine.run.state import STEP_DONE, Run, StepStatus
from tests.simulation.broken import Broken
from tests.simulation.retold import templates

HANDLER, COMPENSATION = ".on_failure", ".compensate"
TEAM = "has(run.labels.team) ? run.labels.team : 'none'"
OUT = (StepStatus.QUEUED, StepStatus.RUNNING)


def begun_with(record: Record) -> Record | None:
    """The start that an answer tells, if it tells one: the log has no other event of it then."""
    event = record.event
    if not isinstance(event, StepCompleted | StepFailed | StepContinue) or event.started_at is None:
        return None
    start = StepStarted(
        run_id=event.run_id,
        step_id=event.step_id,
        timestamp=event.started_at,
        worker_id=event.worker_id,
        attempt_number=event.attempt_number,
        iteration=event.iteration,
        delivery=event.delivery,
    )
    return Record(record.seq, record.at, start)


class Result(NamedTuple):
    """How one attempt of an execution has ended. `final`: no other follows, unless the run is resumed."""

    attempt: int
    ok: bool
    final: bool
    output: Any = None
    error: str = ""


class Told:
    """One run's. `run` is what the engine makes of it, `seq` is of the event that is told. `ready_at`: when each
    execution could begin; `ordered_at`: when it was ordered, perhaps again after a pause; `out`: the elements of each
    map that are carried out; `done_seq`: which event has completed an execution; `paused`: whether the run is, for this
    event."""

    def __init__(self, definition: WorkflowDef, run_id: str) -> None:
        self.definition, self.run_id = definition, run_id
        self.steps: dict[str, Step] = {step.id: step for step in definition.steps}
        self.run: Run | None = None
        self.seq = 0
        self.results: dict[str, Result] = {}
        self.skipped: set[str] = set()
        self.items: dict[str, int] = {}
        self.fragments: dict[str, list[str]] = {}
        self.ready_at: dict[str, float] = {}
        self.ordered_at: dict[str, list[float]] = {}
        self.paused = False
        self.overridden: dict[str, Any] = {}
        self.first: Told | None = None
        self.out: dict[str, set[str]] = {}
        self.done_seq: dict[str, int] = {}
        self.over: set[tuple[str, int]] = set()
        self._tries: dict[str, int] = {}

    def resumed(self, held: str | None = None) -> None:
        """What has failed begins again, but for elements of maps that went on without them; and for the step whose
        handler is held, because somebody completes it."""
        self._tries.clear()
        self.out.clear()
        assert self.run is not None
        done = [one for one in self.items if self.is_done(one) and self.run.steps[one].status in STEP_DONE]
        kept = {item for step_id in done for item in self.items_of(step_id)}
        if held is not None and held.endswith(HANDLER):
            kept |= {one for one in self.results if one == followed(held) or one.rpartition(".")[0] == followed(held)}
        self.results = {one: result for one, result in self.results.items() if result.ok or one in kept}

    def completed_by_hand(self, step_id: str, attempt: int, output: Any) -> None:
        """Somebody has completed the step, whatever it has done so far."""
        self.overridden[step_id] = output
        self.out.pop(step_id, None)
        self.over.add((step_id, attempt))
        self.results[step_id] = Result(attempt, ok=True, final=True, output=output)
        self.done_seq[step_id] = self.seq

    def taken_over(self, step_id: str, taken: TakenStep, *, is_element: bool) -> None:
        """A step of the run that this one repeats, or an element of a map, stands for one of this run. Raises
        Broken."""
        status, step = taken.status, self.steps.get(step_id)
        given = None if isinstance(taken.output, UnsetType) else json(taken.output)
        if not is_element and taken.items is not None:
            self.items[step_id] = taken.items
        if status in ("pending", "running"):
            return  # only parts of it are there
        if status == "skipped":
            self.skipped.add(step_id)
        elif not is_element and taken.items is None and step is not None and step.type in ("map", "planner"):
            if step_id not in self.fragments:
                self.overridden[step_id] = given
        elif status != "recovered" and (is_element or taken.items is None):
            self.results[step_id] = Result(
                taken.attempts, status == "completed", final=True, output=given, error=taken.error or ""
            )
        if status == "completed":
            self.done_seq[step_id] = self.seq
        self._check_same(step_id, given)

    def _check_same(self, step_id: str, given: Any) -> None:
        """What is taken over has the output that it has in the other run; one that is given says so."""
        if step_id not in self.steps or not self.is_done(step_id) or (isinstance(given, dict) and "given" in given):
            return
        if self.first is None or self.first.output(step_id) != self.output(step_id):
            raise self.broken(f"{step_id} is taken over with {self.output(step_id)}")

    def succeeded(self, step_id: str, attempt: int, output: Any = None) -> None:
        """Raises Broken."""
        self._ended(step_id, Result(attempt, ok=True, final=True, output=output))

    def failed(self, step_id: str, attempt: int, error: str) -> None:
        """It has failed for good. Raises Broken."""
        self._ended(step_id, Result(attempt, ok=False, final=True, error=error))

    def tried(self, step_id: str, attempt: int, error: str, *, hopeless: bool) -> None:
        """An attempt has failed; another one follows if the step may have it. Raises Broken."""
        tries = self._tries[step_id] = self._tries.get(step_id, 0) + 1
        final = hopeless or tries > self._retries(step_id)
        self._ended(step_id, Result(attempt, ok=False, final=final, error=error))

    def _ended(self, step_id: str, result: Result) -> None:
        """An attempt has ended, for the first and only time."""
        former = self.results.get(step_id)
        if (step_id, result.attempt) in self.over or (former is not None and former.final):
            raise self.broken(f"attempt {result.attempt} of {step_id} has ended after its end: {result}")
        self.over.add((step_id, result.attempt))
        self.out.get(step_id.rpartition(".")[0], set()).discard(step_id)
        self.results[step_id] = result
        if result.ok:
            self.done_seq[step_id] = self.seq

    # What follows from that

    def is_done(self, step_id: str) -> bool:
        """Whether whoever depends on the step may begin."""
        step = self.steps.get(step_id)
        if step_id in self.skipped or step_id in self.overridden or self.is_recovered(step_id):
            return True
        if step is not None and step.type == "planner":
            return step_id in self.fragments and all(map(self.is_done, self.fragments[step_id]))
        if step is not None and step.type == "map":
            return step_id in self.items and all(self._item_is_done(step, item) for item in self.items_of(step_id))
        result = self.results.get(step_id)
        return result is not None and result.ok

    def has_ended(self, step_id: str) -> bool:
        """Whether the step has completed, or failed for good, by itself."""
        result = self.results.get(step_id)
        return result is not None and result.final

    def output(self, step_id: str) -> Any:
        """The output of a step that is done."""
        step = self.steps.get(step_id)
        if step_id in self.skipped:
            return None
        if step_id in self.overridden:
            return self.overridden[step_id]
        if self.is_recovered(step_id):
            return self.results[step_id + HANDLER].output
        if step is not None and step.type == "planner":
            return self._output_of_plan(step_id)
        if step is not None and step.type == "map":
            wraps = _continues(step)
            return [_element(self.results[item], wraps) for item in self.items_of(step_id)]
        return self.results[step_id].output

    def is_recovered(self, step_id: str) -> bool:
        handled = self.results.get(step_id + HANDLER)
        return handled is not None and handled.ok

    def has_failed(self, step_id: str) -> bool:
        """Whether no attempt of the step, or of the element with which it fails, is left."""
        fails_with = step_id in self.items and not _continues(self.steps[step_id])
        executions = [step_id, *(self.items_of(step_id) if fails_with else ())]
        results = [result for one in executions if (result := self.results.get(one)) is not None]
        return any(result.final and not result.ok for result in results)

    def items_of(self, step_id: str) -> list[str]:
        """The elements of a map."""
        return [f"{step_id}.{number}" for number in range(self.items[step_id])]

    def executions(self, step_id: str) -> list[str]:
        """The step, or the elements of it that there are."""
        if self.steps[step_id].type != "map":
            return [step_id]
        return self.items_of(step_id) if step_id in self.items else []

    def whole(self, step_id: str) -> Step:
        """The step, or the map that this is an element of; of a handler that of what it follows from."""
        step_id = followed(step_id)
        return self.steps.get(step_id) or self.steps[step_id.rpartition(".")[0]]

    def handler(self, step_id: str) -> HandlerDef | None:
        """What the definition says of a handler; None for what is none."""
        if step_id.endswith(HANDLER):
            return self.whole(step_id).on_failure
        return self.whole(step_id).compensate if step_id.endswith(COMPENSATION) else None

    def timeout_of(self, step_id: str) -> float | None:
        """How long an execution may take, in s; None: as long as it wants."""
        own = self.handler(step_id)
        timeout = self.whole(step_id).timeout if own is None or own.timeout is None else own.timeout
        return None if timeout is None else parse(timeout)

    def before(self, step_id: str) -> set[str]:
        """The steps that this one depends on, directly or not."""
        found: set[str] = set()
        ahead = list(self.steps[step_id].depends_on)
        while ahead:
            found.add(one := ahead.pop())
            ahead += self.steps[one].depends_on
        return found

    def is_planner(self, step_id: str) -> bool:
        return step_id in self.steps and self.steps[step_id].type == "planner"

    # What expressions see

    def input_of(self, step: Step, item: int | None) -> Any:
        """What the step, or this element of it, is given; `templates.DEFAULT` without a `with`."""
        given = step.input
        scope = self.scope(step)
        if item is None:
            return templates.DEFAULT if isinstance(given, UnsetType) else templates.evaluated(json(given), scope)
        array = templates.evaluated((step.config or {})["items"], scope)
        scope = {**scope, "item": array[item], "index": item}
        return scope["item"] if isinstance(given, UnsetType) else templates.evaluated(json(given), scope)

    def scope_of_run(self) -> dict[str, Any]:
        names = {"run.id": self.run_id, "run.workflow": self.definition.name, "run.version": self.definition.version}
        own = {} if self.run is None else self.run.labels or {}
        return {**names, TEAM: own.get("team", "none")}

    def scope(self, step: Step) -> Mapping[str, Any]:
        scope = self.scope_of_run()
        for needed in step.depends_on:
            if self.is_done(needed):
                name = needed.rpartition(".")[2]  # as a plan calls it
                scope[f"steps.{name}.output"] = self.output(needed)
                scope[f"steps.{name}.status"] = self._status(needed)
        return scope

    def _status(self, step_id: str) -> str:
        if step_id in self.skipped:
            return "skipped"
        return "recovered" if self.is_recovered(step_id) else "completed"

    def _item_is_done(self, step: Step, item: str) -> bool:
        result = self.results.get(item)
        return result is not None and (result.ok or (result.final and _continues(step)))

    def _output_of_plan(self, step_id: str) -> Any:
        lasts = _lasts(self.steps, self.fragments[step_id])
        if len(lasts) < 2:
            return self.output(lasts[0]) if lasts else None
        return {one.rpartition(".")[2]: self.output(one) for one in lasts}

    def _retries(self, step_id: str) -> int:
        step = self.whole(step_id)
        if step_id in self.steps and step.type == "map":
            return 0
        declared = (self.handler(step_id) or step).retry or self.definition.default_retry
        return 0 if declared is None else declared.max_attempts

    def broken(self, what: str) -> Broken:
        return Broken(f"retold: {what}", self.run_id)


def followed(step_id: str) -> str:
    """What a handler follows from; any other id as it is."""
    return step_id.removesuffix(HANDLER).removesuffix(COMPENSATION)


def is_timeout(event: Event) -> bool:
    """Whether it is the timer of the run's timeout, which after a pause is another one."""
    return isinstance(event, TimerFired) and event.payload.timer.partition("+")[0] == "workflow"


def json(given: Any) -> Any:
    """The value of a raw JSON text."""
    return orjson.loads(bytes(given))


def value_of(payload: Any) -> Any:
    """The value of a payload; null where there is none."""
    return None if isinstance(payload, UnsetType) else json(payload)


def _lasts(steps: Mapping[str, Step], inner: Iterable[str]) -> list[str]:
    needed = {one for other in inner for one in steps[other].depends_on}
    return [one for one in inner if one not in needed]


def _continues(step: Step) -> bool:
    return (step.config or {}).get("on_item_failure") == "continue"


def _element(result: Result, wraps: bool) -> Any:
    if not wraps:
        return result.output
    return {"ok": True, "output": result.output} if result.ok else {"ok": False, "error": result.error}
