"""What workers are given: their input, no more elements than a map allows, nothing of a run that has ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson
from msgspec import UnsetType

from penstock.broker import names
from penstock.broker.worker_messages import TaskPayload, decode_input
from penstock.engine.definition.definitions import Step
from penstock.engine.run.events import Event
from penstock.engine.run.state import Run
from tests.simulation.broken import Broken
from tests.simulation.retold import templates
from tests.simulation.retold.told import COMPENSATION, OUT, Told, followed
from tests.simulation.streams import Message, Stream


class Queued(NamedTuple):
    """A task in the queue in which it was stored."""

    message: Message
    task: TaskPayload


def given_up(queued: Iterable[Queued], before: Run, run: Run) -> list[Queued]:
    """Those whose executions were out, and are not any more. The copy for a bound worker that was sent just before a
    crash may stay, where the next owner has sent the task to all."""
    queued = [*queued]
    last = {_key(one.task): one.message for one in queued}
    return [
        one
        for one in queued
        if _is_out(before, one.task) and not _is_out(run, one.task)
        and (one.message.stream != names.STICKY or last[_key(one.task)] is one.message)
    ]  # fmt: skip


def check_gone(unwanted: Iterable[Queued], run: Run, streams: Mapping[str, Stream]) -> None:
    """These tasks are in their queues no more. Raises Broken."""
    for message, task in unwanted:
        if streams[message.stream].messages.get(message.seq) is message and not _is_out(run, task):
            raise Broken(f"retold: its task {task.step_id} waits for a worker, and it is {run.status}", run.run_id)


class Tasks:
    """Those of one run."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._queued: list[Queued] = []
        self._unwanted: list[Queued] = []

    def queued(self, message: Message, task: TaskPayload) -> None:
        """Raises Broken for a task that nobody should have."""
        assert self._told.run is not None
        step = self._told.whole(task.step_id)
        if not _is_out(self._told.run, task):
            return  # it was sent long ago
        self._queued.append(Queued(message, task))
        if followed(task.step_id) != task.step_id:
            self._check_followed(task.step_id, step, decode_input(task))
            return
        if step.type == "planner":
            self._check_told_why(step, task)
        wanted = self._told.input_of(step, task.item)
        if wanted is not templates.DEFAULT and decode_input(task) != wanted:
            raise self._told.broken(f"{task.step_id} was given {decode_input(task)}, not {wanted}")
        if task.item is not None:
            self.check_room(step, task.step_id)

    def check_room(self, step: Step, item: str) -> None:
        """An element is carried out: no more of them than the map says. Raises Broken."""
        out = self._told.out.setdefault(step.id, set())
        out.add(item)
        most = (step.config or {}).get("max_concurrency")
        if most is not None and len(out) > most:
            raise self._told.broken(f"of {step.id}, {sorted(out)} are out, and max_concurrency is {most}")

    def closed(self, before: Run, run: Run, event: Event) -> None:
        """The run has ended early, or undoes its steps: what was out, and is not any more, is not wanted. An attempt
        that ends by its timeout stays with its worker."""
        ended = getattr(event, "step_id", None)
        self._unwanted = [one for one in given_up(self._queued, before, run) if one.task.step_id != ended]

    def check_withdrawn(self, run: Run, streams: Mapping[str, Stream]) -> None:
        """Raises Broken."""
        check_gone(self._unwanted, run, streams)

    def _check_told_why(self, step: Step, task: TaskPayload) -> None:
        """A planner is told what was wrong with its last plan."""
        former = self._told.results.get(step.id)
        if task.previous_error != (None if former is None else former.error):
            raise self._told.broken(f"{step.id} is tried again without being told of {former}")

    def _check_followed(self, step_id: str, step: Step, given: Any) -> None:
        """What a handler of a failure is given, or what undoes a step."""
        handler = self._told.handler(step_id)
        assert handler is not None
        own = {"default.step": step.id, "run.workflow": self._told.definition.name}
        undoes = step_id.endswith(COMPENSATION)
        if undoes:
            own["default.output"] = self._told.output(followed(step_id))
        if not isinstance(handler.input, UnsetType):
            wanted = templates.evaluated(orjson.loads(bytes(handler.input)), own)
            if given != wanted:
                raise self._told.broken(f"{step_id} was given {given}, not {wanted}")
        elif undoes:
            self._check_undone(step_id, step, given)
        else:
            self._check_handled(step, given)

    def _check_undone(self, step_id: str, step: Step, given: Any) -> None:
        """It is given what its step was given, and what that has returned."""
        done = followed(step_id)
        number = None if done in self._told.steps else int(done.rpartition(".")[2])
        wanted = {"input": self._told.input_of(step, number), "output": self._told.output(done)}
        if wanted["input"] is templates.DEFAULT:
            wanted["input"] = given["input"]
        if given != wanted:
            raise self._told.broken(f"{step_id} was given {given}, not {wanted}")

    def _check_handled(self, step: Step, given: Any) -> None:
        """A handler without `with` is told how its step has failed."""
        assert self._told.run is not None
        attempts = self._told.run.steps[step.id].attempts
        if (given["step"], given["attempts"]) != (step.id, attempts) or not given["error"]:
            raise self._told.broken(f"the handler of {step.id} was given {given}, after {attempts} attempts")


def _key(task: TaskPayload) -> tuple[str, int]:
    return task.step_id, task.attempt


def _is_out(run: Run, task: TaskPayload) -> bool:
    state = run.find(task.step_id)
    return state is not None and state.attempts == task.attempt and state.status in OUT
