"""`replay`: a recorded run once more, and what is different today."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from penstock.engine.definition.definitions import run_limits
from penstock.engine.run.events import Event, WorkflowScheduled, WorkflowStarted
from penstock.testing.memory.calling import Calls
from penstock.testing.memory.catalog import CatalogInMemory, Definition, RegisteredWorkflow
from penstock.testing.memory.engine import EngineInMemory, RunInMemory
from penstock.testing.memory.script import AnswerTask, Script
from penstock.testing.memory.tasks import ExecutionKey
from penstock.testing.memory.timeline import Timeline
from penstock.testing.replaying.differences import Difference, differences
from penstock.testing.replaying.performing import ReplayedLimits, ReplayedWaits, ReplayPerformer
from penstock.testing.replaying.recording import Export, Recording, read
from penstock.testing.replaying.tasks import ReplayedTasks, execution
from penstock.testing.run import ServiceParts, TestRun
from penstock.worker.functions import TaskFunction, task_function

NO_OUTCOME = "no outcome was recorded: give one in `answers`, or a function in `tasks`"


class Replay:
    """A recorded run with the definition of today. `run` is what became of it, `differences` where it is not what was
    recorded: the order is that of the steps."""

    def __init__(self, run: TestRun, found: list[Difference]) -> None:
        self.run, self.differences = run, found

    @property
    def same(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        if self.same:
            return f"{self.run!r} is as it was"
        count = "1 difference" if len(self.differences) == 1 else f"{len(self.differences)} differences"
        lines = [f"  {one}" for one in self.differences]
        return "\n".join([f"{self.run!r} has {count} to its recording:", *lines, str(self.run.history)])


class _Repeated(Struct, frozen=True):
    run: TestRun
    inputs: Mapping[ExecutionKey, Any]
    found: list[Difference]
    unanswered: list[str]


def replay(
    export: Export,
    workflow: Definition | None = None,
    *,
    tasks: Mapping[str, Callable[..., Any]] | None = None,
    answers: Mapping[str, Any] | None = None,
) -> Replay:
    """Let a recorded run happen once more: workers, people, children and events say what they said, when they said it.

    `export` is what `penstock run export` wrote: the path of a file, JSON, or a dict. `workflow` is the definition of
    today; without it the recorded one is used. No function is called but those in `tasks` (by task type): each is given
    the input of today, and what it returns is compared with what was recorded. A step that is new, or is carried out
    more often than then, is answered by `answers` (by step or task type), or by its function in `tasks`.

    Raises Invalid for an export or a definition that is none, OSError for a file that cannot be read.
    """
    recording = read(export)
    recorded = _recorded(recording)
    before = _repeated(recording.again(), recording.definition, {}, {})
    today = _repeated(recording.again(), workflow or recording.definition, tasks or {}, answers or {})
    found = [*_inputs(before.inputs, today.inputs), *today.found]
    unanswered = (
        Difference(f"step {step_id!r}", "outcome", None, NO_OUTCOME)
        for step_id in today.unanswered
        if step_id not in before.unanswered
    )
    return Replay(today.run, [*found, *unanswered, *differences(recorded, today.run)])


def assert_same(found: Replay) -> None:
    """Nothing is different today."""
    if not found.same:
        _fail(str(found))


def _fail(text: str) -> NoReturn:
    __tracebackhide__ = True
    raise AssertionError(text)


def _recorded(recording: Recording) -> TestRun:
    """The run as its log has it."""
    parts, _, _ = _service(recording, recording.definition, {}, {})
    of = parts.engine.runs[recording.run_id] = RunInMemory(recording.run_id)
    of.workflow = recording.workflow
    of.records = {record.seq: record for record in recording.records}
    of.run = recording.run
    return TestRun(parts, of)


def _repeated(
    recording: Recording,
    definition: Definition,
    tasks: Mapping[str, Callable[..., Any]],
    answers: Mapping[str, Any],
) -> _Repeated:
    parts, registered, replayed = _service(recording, definition, tasks, answers)
    engine = parts.engine
    for record in recording.begins:
        engine.append_at(record.at, _of_today(record.event, registered))
    for record in recording.outside:
        engine.append_at(record.at, record.event)
    if recording.has_ended:
        while engine.advance_to_next():
            pass
    else:
        engine.advance_to(recording.records[-1].at)
    parts.calls.close()
    run = TestRun(parts, engine.get(recording.run_id))
    return _Repeated(run, replayed.inputs, replayed.found, list(replayed.unanswered))


def _service(
    recording: Recording,
    definition: Definition,
    tasks: Mapping[str, Callable[..., Any]],
    answers: Mapping[str, Any],
) -> tuple[ServiceParts, RegisteredWorkflow, ReplayedTasks]:
    """A service in memory that knows this definition, at the time at which the run begins."""
    timeline, catalog, script = Timeline(recording.begins[0].at), CatalogInMemory(), Script()
    functions: dict[str, TaskFunction] = {name: task_function(name, function) for name, function in tasks.items()}
    for name, value in answers.items():
        script.add(name, AnswerTask(value), None)
    engine, calls = EngineInMemory(timeline, catalog), Calls(timeline)
    replayed = ReplayedTasks(engine, calls, script, functions, recording)
    performer = engine.performer = ReplayPerformer(
        engine, replayed, ReplayedWaits(engine, recording), ReplayedLimits(engine, recording), recording
    )
    return ServiceParts(engine, performer, calls, replayed), catalog.register(definition), replayed


def _of_today(event: Event, registered: RegisteredWorkflow) -> Event:
    """The event that begins the run, with the definition that it has today."""
    definition = registered.definition
    named = {"workflow": definition.name, "version": definition.version, "digest": registered.digest}
    match event:
        case WorkflowStarted(payload=payload):
            return replace(event, payload=replace(payload, **named, waits=run_limits(definition)))
        case WorkflowScheduled(payload=payload):
            return replace(event, payload=replace(payload, **named))
        case _:
            return event


def _inputs(before: Mapping[ExecutionKey, Any], today: Mapping[ExecutionKey, Any]) -> Iterator[Difference]:
    for key, given in before.items():
        if key in today and today[key] != given:
            yield Difference(execution(key), "input", given, today[key])
