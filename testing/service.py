"""`TestService`: the service in memory, as tests use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec import Raw

from penstock.engine.definition.http_requests import TASK as HTTP_TASK
from penstock.engine.definition.labels import problems as label_problems
from penstock.engine.errors import Invalid
from penstock.engine.limits.records import Allowed
from penstock.engine.run.event_payloads import LABELS_FORMAT, Failure, Scheduled, SignalRef
from penstock.engine.run.events import SignalReceived, WorkflowScheduled
from penstock.engine.run.execution.children import check_input
from penstock.engine.times import rfc3339
from penstock.testing.memory.calling import Calls
from penstock.testing.memory.catalog import CatalogInMemory, Definition, RegisteredWorkflow
from penstock.testing.memory.engine import EngineInMemory
from penstock.testing.memory.limits import LimitsInMemory
from penstock.testing.memory.performing import FailedTask, Performer
from penstock.testing.memory.script import AnswerTask, DelayTask, FailTask, LoseTask, RepeatTask, Script
from penstock.testing.memory.tasks import TasksInMemory
from penstock.testing.memory.timeline import Timeline, epoch_of, seconds_of
from penstock.testing.memory.waits import WaitsInMemory
from penstock.testing.run import ServiceParts, TestRun, runs_of
from penstock.testing.starting import started
from penstock.testing.triggers.firing import TriggersInMemory
from penstock.testing.triggers.triggers import TestTriggers
from penstock.worker.authored import functions_of
from penstock.worker.functions import TaskFunction, task_function
from penstock.worker.tasks.payloads import as_json

if TYPE_CHECKING:
    from penstock.authoring.workflow import Workflow

START = "2026-01-01T00:00:00Z"
FAILURE_TYPES = ("retriable", "non_retriable", "retry_after")


class TestService:
    """A service in this process, for the time of a `with` block: real definitions, the engine's own decisions, task
    functions that are called directly, and a clock that moves when the test says so.

    `workflows` are registered at once. `tasks` are functions by task type; those of workflows in Python come by
    themselves. `http` carries out http steps: it is given the request and returns `status`, `headers` and `body`.
    `triggers` has triggers. `now` is where the clock begins. One thread uses it, a test that is async included.
    """

    __test__ = False  # pytest takes it for a class of tests

    def __init__(
        self,
        *workflows: Definition,
        tasks: Mapping[str, Callable[..., Any]] | None = None,
        http: Callable[..., Any] | None = None,
        now: str | float | datetime = START,
    ) -> None:
        self._timeline = Timeline(epoch_of(now))
        self._catalog, self._script = CatalogInMemory(), self._make_script()
        self._functions: dict[str, TaskFunction] = {}
        self._engine = EngineInMemory(self._timeline, self._catalog)
        self._calls = Calls(self._timeline)
        self._calls.send_signal = self._signal
        self._tasks = TasksInMemory(self._engine, self._calls, self._script, self._functions)
        self._waits = WaitsInMemory(self._engine)
        self._limits = LimitsInMemory(self._engine)
        self._performer = self._engine.performer = Performer(self._engine, self._tasks, self._waits, self._limits)
        self._parts = ServiceParts(self._engine, self._performer, self._calls, self._tasks)
        self.triggers = TestTriggers(TriggersInMemory(self._engine), self._waits, self._engine, self.run)
        self._run_number = 0
        self._served: list[Workflow[Any]] = []
        for name, function in (tasks or {}).items():
            self._functions[name] = task_function(name, function)
        if http is not None:
            self._functions[HTTP_TASK] = task_function("http", http)._replace(name=HTTP_TASK)
        for workflow in workflows:
            self.register(workflow)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the task functions that still wait for something."""
        self._calls.close()

    # Runs.

    def register(self, workflow: Definition) -> None:
        """Register a definition, or a newer version of it; a workflow in Python brings its functions along. Raises
        Invalid with every problem."""
        self._serve(workflow)
        self._catalog.register(workflow)

    def start(
        self,
        workflow: Definition,
        input: Any = None,
        *,
        labels: dict[str, str] | None = None,
        run_at: str | datetime | None = None,
    ) -> TestRun:
        """Start a run, and do all that can be done without time passing. The workflow is a definition, a workflow in
        Python, or the name of a registered one; `input` is whatever JSON can be made of. With `run_at` it starts then.

        Raises Invalid for an input that breaks the workflow's schema, NotFound.
        """
        self._serve(workflow)
        found, value = self._catalog.find(workflow), Raw(as_json(input))
        if labels and (wrong := list(label_problems("labels", labels))):
            raise Invalid(*wrong)
        check_input(found.schema, value)
        run_id = self._new_run_id()
        if run_at is None:
            self._engine.append(started(run_id, found, value, self.now, labels))
        else:
            self._schedule(run_id, found, value, labels, epoch_of(run_at))
        self._engine.settle()
        return self.run(run_id)

    def run(self, run_id: str) -> TestRun:
        """A run by its id. Raises NotFound."""
        return TestRun(self._parts, self._engine.get(run_id))

    @property
    def runs(self) -> list[TestRun]:
        """All runs, children and those that follow from failures included, in the order of their starts."""
        return runs_of(self._parts)

    # Time.

    @property
    def now(self) -> str:
        """The time of the service, RFC 3339."""
        return self._timeline.stamp

    def advance(self, duration: str | float | timedelta = 0.0) -> None:
        """Let time pass: everything that is due happens, each at its time. `30d`, `1h30m`, seconds, or a timedelta."""
        self._engine.advance_to(self._timeline.now + seconds_of(duration))

    def advance_to(self, when: str | float | datetime) -> None:
        """Let time pass until then. Raises Invalid for a time that is over."""
        until = epoch_of(when)
        if until < self._timeline.now:
            raise Invalid(f"time goes forward: {rfc3339(until)} is before {self.now}")
        self._engine.advance_to(until)

    def advance_to_next(self) -> bool:
        """Let time pass until the next thing is due, and do it. Returns False when nothing is."""
        return self._engine.advance_to_next()

    # What tasks do.

    def task(self, name: str, function: Callable[..., Any]) -> None:
        """From now on, this function carries out tasks of this type; also those that have waited for one."""
        self._functions[name] = task_function(name, function)
        self._more_tasks()

    def fail(
        self,
        name: str,
        error: str = "scripted failure",
        *,
        times: int | None = 1,
        failure_type: str = "retriable",
        retry_after: str | float | timedelta = 0.0,
    ) -> None:
        """Let the next attempts of a step, or of a task type, fail without calling the function; `times=None`: all.

        `failure_type` is `retriable`, `non_retriable`, or `retry_after` with the delay `retry_after`. Raises Invalid.
        """
        if failure_type not in FAILURE_TYPES:
            raise Invalid(f"failure_type {failure_type!r} is none of {', '.join(FAILURE_TYPES)}")
        failure = Failure(error, failure_type, round(seconds_of(retry_after) * 1000))
        self._say(name, FailTask(failure), times)

    def answer(self, name: str, value: Any = None, *, times: int | None = None) -> None:
        """Let attempts of a step, or of a task type, end with this value instead of calling the function. An exception
        is raised, a function is called with the input."""
        self._say(name, AnswerTask(value), times)

    def lose(self, name: str, *, times: int | None = 1, after_call: bool = False) -> None:
        """Let the worker die with the next tasks of a step, or of a task type: they are delivered again 30 s later.
        With `after_call` it has called the function before, and could not report what that returned."""
        self._say(name, LoseTask(after_call), times)

    def delay(self, name: str, duration: str | float | timedelta, *, times: int | None = None) -> None:
        """Let attempts of a step, or of a task type, take so long: the function is called at once, its outcome is
        reported later."""
        self._say(name, DelayTask(seconds_of(duration)), times)

    def duplicate(self, name: str, *, times: int | None = 1, after: str | float | timedelta = "30s") -> None:
        """Let the next tasks of a step, or of a task type, be delivered and carried out once more, so long after their
        outcome: as when the acknowledgement of a worker gets lost."""
        self._say(name, RepeatTask(seconds_of(after)), times)

    def forget(self, name: str | None = None) -> None:
        """Forget what was said about a step or a task type, or about all."""
        self._script.clear(name)

    @property
    def unused(self) -> list[str]:
        """The names for which something was scripted a number of times that did not happen so often."""
        return self._script.unused()

    def waiting_tasks(self, run_id: str | None = None) -> list[tuple[str, str]]:
        """Steps and task types of tasks that wait for a function (`task`) or an answer (`answer`), of one run or of
        all."""
        return self._tasks.without_function(run_id)

    @property
    def dead_letters(self) -> list[FailedTask]:
        """Tasks that failed for good, oldest first."""
        return list(self._performer.dead_letters)

    # From outside.

    def send_event(self, name: str, body: Any = None, *, event_id: str | None = None) -> None:
        """Send an event: steps that wait for it go on, and triggers on it start runs. One with the `event_id` of an
        earlier one starts none."""
        self.triggers.receive_event(name, as_json(body), event_id)

    def set_limit(
        self,
        scope: str,
        limit: int,
        *,
        per: str | None = None,
        burst: int | None = None,
        key: str | None = None,
        kind: str | None = None,
    ) -> None:
        """Let the scope of a limit allow so many at a time, or with `per` (`1s`) so many in each such span, instead of
        what definitions say; for one `key`, or for all. 0 lets nothing begin; nobody who holds a slot loses it.

        Raises NotFound for a scope without such a limit, Invalid where it has several kinds and `kind` does not say
        which.
        """
        if limit < 0:
            raise Invalid(f"limit is {limit}: 0 at least")
        allowed = Allowed(limit, None if per is None else seconds_of(per), burst)
        self._limits.override(scope, key, allowed, kind)
        self._engine.settle()

    def reset_limit(self, scope: str, *, key: str | None = None, kind: str | None = None) -> None:
        """Let what definitions say count again. Raises NotFound where nothing was set."""
        self._limits.take_back(scope, key, kind)
        self._engine.settle()

    def after(self, duration: str | float | timedelta, act: Callable[[], None]) -> None:
        """Have somebody do something when so much time has passed: `service.after("2h", run.approve)`. An exception
        comes out of the call that lets the time pass."""
        self._timeline.after(seconds_of(duration), act)

    def _make_script(self) -> Script:
        return Script()

    def _say(self, name: str, entry: Any, times: int | None) -> None:
        if times is not None and times < 1:
            raise Invalid(f"times is {times}: 1 at least, or None for always")
        self._script.add(name, entry, times)
        self._more_tasks()

    def _more_tasks(self) -> None:
        self._tasks.deliver_waiting()
        self._engine.settle()

    def _serve(self, workflow: Definition) -> None:
        """Serve the functions of a workflow in Python."""
        if isinstance(workflow, str | bytes | Mapping) or any(workflow is served for served in self._served):
            return
        authored: Workflow[Any] = workflow
        functions = functions_of([*self._served, authored])
        for name in authored.tasks:
            self._functions.setdefault(name, functions[name])  # one that the test gave stays
        self._served.append(authored)

    def _schedule(
        self, run_id: str, found: RegisteredWorkflow, value: Raw, labels: dict[str, str] | None, at: float
    ) -> None:
        definition = found.definition
        payload = Scheduled(definition.name, definition.version, found.digest, rfc3339(at), value, labels)
        event = WorkflowScheduled(run_id=run_id, timestamp=self.now, payload=payload, v=LABELS_FORMAT if labels else 1)
        self._engine.append(event)

        def begin() -> None:
            self._engine.append(started(run_id, found, value, self.now, labels))

        self._timeline.at(at, begin)

    def _signal(self, run_id: str, name: str, payload: bytes) -> None:
        self._engine.get(run_id)
        ref = SignalRef(name, len(payload))
        message_id = f"{run_id}.signal.{name}.{self._engine.seq}"
        self._engine.append(SignalReceived(run_id=run_id, timestamp=self.now, payload=ref), message_id)
        self._calls.signal(run_id, name, payload)

    def _new_run_id(self) -> str:
        """As those of the service: the time first, and then what is unique."""
        self._run_number += 1
        return f"{int(self._timeline.now * 1000):012x}7{self._run_number:019x}"
