"""Tasks of a replay: workers say what they said then, and functions that are given are called beside that."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson
from msgspec import Raw, UnsetType

from penstock.engine.run.commands import DispatchTask
from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.events import Event, StepCompleted
from penstock.testing.memory.calling import Calls
from penstock.testing.memory.engine import EngineInMemory, RunInMemory
from penstock.testing.memory.script import Script
from penstock.testing.memory.tasks import ExecutionKey, TaskInMemory, TasksInMemory
from penstock.testing.replaying.differences import Difference
from penstock.testing.replaying.recording import Recording
from penstock.worker.functions import TaskFunction
from penstock.worker.outcomes import Outcome, TaskCompleted


class ReplayedTasks(TasksInMemory):
    """Owned by a replay. `inputs` is what each execution was given, `found` is where functions answer otherwise.
    `unanswered` are the steps that nothing carries out."""

    def __init__(
        self,
        engine: EngineInMemory,
        calls: Calls,
        script: Script,
        functions: Mapping[str, TaskFunction],
        recording: Recording,
    ) -> None:
        super().__init__(engine, calls, script, functions)
        self._recording = recording
        self.inputs: dict[ExecutionKey, Any] = {}
        self.found: list[Difference] = []
        self.unanswered: dict[str, None] = {}

    def dispatch(self, of: RunInMemory, command: DispatchTask) -> None:
        """Have the events of this execution happen, none before its time. One that was not recorded is carried out by
        a function, or waits."""
        key = command.step_id, command.iteration, command.attempt
        assert isinstance(command.input, Raw)
        is_new, self.inputs[key] = key not in self.inputs, orjson.loads(bytes(command.input))
        events = self._recording.of_execution(key)
        if not events:
            if command.task not in self._functions and not self._script.answers([command.step_id, command.task]):
                self.unanswered[command.step_id] = None
            super().dispatch(of, command)
        elif is_new:
            for record in events:
                self._engine.append_at(record.at, record.event)
            self._compare(of, command, events[-1].event)

    def _compare(self, of: RunInMemory, command: DispatchTask, ended: Event) -> None:
        """Call the function, if there is one, with the input of today. Recorded failures are not repeated."""
        function = self._functions.get(command.task)
        if function is not None and isinstance(ended, StepCompleted):
            self._calls.call(function, TaskInMemory(of, command), partial(self._answered, command, ended))

    def _answered(self, command: DispatchTask, recorded: StepCompleted, outcome: Outcome) -> None:
        where = f"function of {command.task!r} in {execution((command.step_id, command.iteration, command.attempt))}"
        before = _decoded(recorded.payload)
        if not isinstance(outcome, TaskCompleted):
            said = outcome.error if isinstance(outcome, Failure) else type(outcome).__name__
            self.found.append(Difference(where, "output", before, f"no output: {said}"))
        elif (today := _decoded(outcome.output)) != before:
            self.found.append(Difference(where, "output", before, today))


def execution(key: ExecutionKey) -> str:
    """An execution as texts name it."""
    step_id, iteration, attempt = key
    of_loop = f", iteration {iteration}" if iteration else ""
    return f"step {step_id!r}{of_loop}" + (f", attempt {attempt}" if attempt > 1 else "")


def _decoded(value: bytes | Raw | UnsetType | None) -> Any:
    return orjson.loads(bytes(value)) if isinstance(value, bytes | Raw) else None
