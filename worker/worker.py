"""The worker: task functions, and the life of the process that executes them."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, closing
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_fixed

from penstock.config.logging import get_logger, is_configured
from penstock.config.process.memory import seldom_collected
from penstock.config.settings import LogSettings, Settings, SettingsError, TelemetrySettings, load
from penstock.engine.definition.identifiers import problem_with
from penstock.engine.errors import Conflict, Invalid, PenstockError, Unavailable
from penstock.worker.authored import functions_of, register
from penstock.worker.functions import TaskFunction, task_function
from penstock.worker.live.outbox import Outboxes
from penstock.worker.local_limits import TaskLimits
from penstock.worker.tasks.executor import TaskExecutor
from penstock.worker.tasks.threads import Threads
from penstock.worker.transport import IntakeLimits, TaskIntake, Transport
from penstock.worker.transports.registration import registration

if TYPE_CHECKING:
    from penstock.authoring.workflow import Workflow

MAX_TASKS_DEFAULT = 100
TRANSPORTS = ("nats", "bridge")
URL_VARIABLE = "SERVICE_URL"
URL_DEFAULT = "http://localhost:8080"
GRACE_S = 10.0  # within the 15 s that a process has for its shutdown
START_AGAIN_S = 1.0
HOST_CHARS = 64

F = TypeVar("F", bound=Callable[..., Any])

log = get_logger()


class Worker:
    """Task functions under their task types, and what runs them.

    `max_tasks` bounds what it holds at one time, over all its types; functions that are not async have as many threads.
    `transport` is `nats`, straight to the broker, or `bridge`, over HTTP. `broker_url` None: as the settings say
    (SERVICE_BROKER_URL, or `broker_url` in the file). `url` and `bridge_token` None: SERVICE_URL and
    SERVICE_BRIDGE_TOKEN. `group`: take only tasks of steps with this `worker_group`. `grace_s` is what running tasks
    have to finish in when it stops. `workflows`, written in Python, are registered over HTTP when it starts, with
    either transport, at `url` with `api_token` (None: SERVICE_API_TOKEN), and the functions of their steps are served.
    Raises Invalid with everything that is wrong with id, group, number, metadata and transport.
    """

    def __init__(
        self,
        *,
        max_tasks: int = MAX_TASKS_DEFAULT,
        worker_id: str | None = None,
        broker_url: str | None = None,
        metadata: Mapping[str, str] = {},
        group: str | None = None,
        grace_s: float = GRACE_S,
        transport: Literal["nats", "bridge"] = "nats",
        url: str | None = None,
        bridge_token: str | None = None,
        workflows: Sequence[Workflow[Any]] = (),
        api_token: str | None = None,
    ) -> None:
        self.worker_id: str = _new_id() if worker_id is None else worker_id
        self._bounds, self._metadata = IntakeLimits(max_tasks, group, grace_s), dict(metadata)
        self._transport, self._broker_url, self._url, self._bridge_token = transport, broker_url, url, bridge_token
        self._workflows, self._api_token = tuple(workflows), api_token
        self._functions: dict[str, TaskFunction] = functions_of(workflows)
        self._intake: TaskIntake | None = None
        self._stopped = asyncio.Event()
        _check(self.worker_id, group, max_tasks, metadata, transport)

    def task(
        self, name: str | None = None, *, rate: str | None = None, max_concurrency: int | None = None
    ) -> Callable[[F], F]:
        """Register a function, async or not, for a task type (default: the function's name). It takes `()`, `(input)`
        or `(input, ctx)`; what it returns is the step's output, None: no output.

        `rate` (`10/s`, `600/m`, `5/2s`) and `max_concurrency` limit the tasks of this type that this one process
        begins in any span of that time, and executes at one time. Raises Invalid, Conflict for a name taken."""
        if callable(name):
            raise Invalid(f'write @worker.task() or @worker.task("{getattr(name, "__name__", "name")}")')

        def registered(function: F) -> F:
            found = task_function(name, function, TaskLimits(rate, max_concurrency))
            if found.name in self._functions:
                raise Conflict(f'task type "{found.name}" is registered twice')
            self._functions[found.name] = found
            return function

        return registered

    def run(self) -> None:
        """Work until SIGTERM or SIGINT, then stop gracefully; a second signal stops at once. What keeps it from
        starting ends the process with one line. Raises RuntimeError in a running event loop: `await worker.serve()` is
        for there."""
        _refuse_a_running_loop()
        try:
            if not is_configured():
                _configure_logging(self._settings().log)
            import uvloop  # a worker inside an application has its loop

            with seldom_collected():
                uvloop.run(self._until_signal())
        except asyncio.CancelledError:
            pass  # a signal before it had begun
        except (SettingsError, PenstockError) as error:
            raise SystemExit(f"Error: {error}") from error

    async def serve(self) -> None:
        """Work until `stop`. It waits for a service that is not available yet."""
        async with AsyncExitStack() as stack:
            await _STARTING(self._enter, stack)
            await self._stopped.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Worker]:
        """Work for the time of the block; leaving it stops gracefully. Raises Unavailable without a broker or a
        service, Denied by the bridge, Conflict for a consumer that serves other tasks."""
        if not self._functions:
            raise Invalid("the worker has no task functions")
        await self._register()
        async with _exporting(self._settings().telemetry), self._opened() as transport:
            bounds = self._bounds
            entry = registration(
                self.worker_id,
                self.task_types,
                bounds.max_tasks,
                bounds.group,
                {**_limits_shown(self._functions.values()), **self._metadata},
                transport.name,
            )
            try:
                async with transport.registered(entry), self._working(transport) as self._intake:
                    log.info(
                        "worker_started",
                        worker_id=self.worker_id,
                        task_types=sorted(self._functions),
                        transport=transport.name,
                    )
                    yield self
            finally:
                self._intake, self._stopped = None, asyncio.Event()
        log.info("worker_stopped", worker_id=self.worker_id)

    async def _register(self) -> None:
        if self._workflows:
            token = self._api_token or self._settings().http.api_token
            await register(self._workflows, self._service_url(), token)

    @property
    def task_types(self) -> tuple[str, ...]:
        """The task types that it has functions for."""
        return tuple(self._functions)

    @property
    def workflows(self) -> tuple[Workflow[Any], ...]:
        """The workflows that it registers and serves."""
        return self._workflows

    def stop(self) -> None:
        """Let `serve` stop gracefully; called in the loop."""
        self._stopped.set()

    async def _until_signal(self) -> None:
        loop, serving = asyncio.get_running_loop(), asyncio.current_task()
        assert serving is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, serving)
        await self.serve()

    def _signalled(self, serving: asyncio.Task[None]) -> None:
        if self._intake is None:
            serving.cancel()
        elif self._stopped.is_set():
            self._intake.cancel()
        else:
            self.stop()

    async def _enter(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.running())

    @asynccontextmanager
    async def _working(self, transport: Transport) -> AsyncIterator[TaskIntake]:
        threads, outboxes = Threads(self._bounds.max_tasks), Outboxes()
        executor, functions = TaskExecutor(threads, outboxes), list(self._functions.values())
        with closing(threads):
            async with aclosing(outboxes), transport.receiving(functions, executor, self._bounds) as intake:
                yield intake

    def _opened(self) -> AbstractAsyncContextManager[Transport]:
        settings = self._settings()
        # Each transport's client is imported by who uses it: so `import penstock.worker` takes a third of the time.
        if self._transport == "nats":
            from penstock.worker.transports.direct import open_direct

            return open_direct(settings.broker, self.worker_id)
        from penstock.worker.transports.bridge import open_bridge

        return open_bridge(self._service_url(), self._bridge_token or settings.http.bridge_token, self.worker_id)

    def _service_url(self) -> str:
        return self._url or os.environ.get(URL_VARIABLE) or URL_DEFAULT

    def _settings(self) -> Settings:
        """Raises SettingsError."""
        return load({} if self._broker_url is None else {"broker_url": self._broker_url}).settings


@asynccontextmanager
async def _exporting(settings: TelemetrySettings) -> AsyncIterator[None]:
    """Export the spans of the task functions, if the settings say so."""
    if settings.otlp_endpoint is None:
        yield
        return
    from penstock.telemetry.otlp import worker_spans  # loaded by who exports only
    from penstock.telemetry.otlp.resource import OtlpTarget

    worker_spans.set_up(OtlpTarget(settings.otlp_endpoint, settings.otlp_headers))
    try:
        yield
    finally:
        await asyncio.to_thread(worker_spans.flush)


def _refuse_a_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "worker.run() starts an event loop of its own, but one is running here already: use `await worker.serve()`, "
        "or `async with worker.running():`"
    )


def _configure_logging(settings: LogSettings) -> None:
    from penstock.config.log_setup import configure  # a worker inside an application never pays for it

    configure(settings, "worker")


def _check(worker_id: str, group: str | None, max_tasks: int, metadata: Mapping[str, str], transport: str) -> None:
    found = [problem_with("worker id", worker_id), None if group is None else problem_with("worker group", group)]
    if max_tasks < 1:
        found.append(f"max_tasks is {max_tasks}, 1 is the least")
    if transport not in TRANSPORTS:
        found.append(f"transport must be one of {' '.join(TRANSPORTS)}, not {transport!r}")
    found += [f"metadata {key!r} is no string" for key, value in metadata.items() if not isinstance(value, str)]
    if problems := [problem for problem in found if problem]:
        raise Invalid(*problems)


def _limits_shown(functions: Iterable[TaskFunction]) -> dict[str, str]:
    """The local limits of each type that has some, for the worker's registration."""
    return {f"limits.{function.name}": function.limits.text for function in functions if function.limits.text}


def _new_id() -> str:
    """Host, process and a random part: unique for each worker, also within one process."""
    host = re.sub("[^A-Za-z0-9_-]", "-", socket.gethostname())[:HOST_CHARS] or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"


def _not_ready(error: BaseException) -> bool:
    """Whether the service may still be starting: no broker yet, or no streams."""
    from penstock.broker.nats.errors import ApiError, Code  # as in `_opened`

    return isinstance(error, Unavailable) or (isinstance(error, ApiError) and error.err_code == Code.STREAM_NOT_FOUND)


def _log_wait(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    log.warning("worker_waits_for_service", error=str(error))


_STARTING = AsyncRetrying(
    retry=retry_if_exception(_not_ready), wait=wait_fixed(START_AGAIN_S), before_sleep=_log_wait, reraise=True
)
