"""The asyncio client of the HTTP API: the methods of client.py, as coroutines and asynchronous iterators."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from penstock.client import calls, requests, workflow_requests
from penstock.client.access import requests as access_requests
from penstock.client.address import TIMEOUT_S
from penstock.client.api_request import ApiRequest, PagedRequest
from penstock.client.async_connection import AsyncConnection
from penstock.client.history import requests as history
from penstock.client.limits import requests as limit_requests
from penstock.client.live import asynchronous as streams
from penstock.client.live import events as live_events
from penstock.client.live import requests as live_requests
from penstock.client.methods import documented
from penstock.client.operating import requests as operating
from penstock.client.recovery import requests as recovery
from penstock.client.runs.asynchronous import AsyncRunHandle
from penstock.client.runs.starting import Definable, wanted
from penstock.client.sending.retries import RETRIES
from penstock.client.views import ChunkView, EventView, LogLineView

P = ParamSpec("P")
T = TypeVar("T")


def _sent(make: Callable[P, ApiRequest[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """A method that sends the request; its coroutine returns the result."""

    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._service.send(make(*args, **kwargs))

    return documented(method, make)


def _listed(make: Callable[P, PagedRequest[T]]) -> Callable[Concatenate[AsyncClient, P], AsyncGenerator[T]]:
    """A method that returns an asynchronous iterator of the items of all pages."""

    def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T]:
        return self._service.items(make(*args, **kwargs))

    return documented(method, make)


class AsyncClient:
    """Owned by its caller, an asynchronous context manager; one connection pool for its lifetime, for the event loop
    that it is first used in. Several tasks may use it at once.

    A request that is not answered within `timeout_s` seconds raises UnavailableError, or is sent again: what the
    service did is unknown.
    """

    def __init__(
        self, base_url: str, token: str | None = None, timeout_s: float = TIMEOUT_S, *, retries: int = RETRIES
    ) -> None:
        """`token` is the service's API token. A request is sent again up to `retries` times where that cannot act
        twice; 0 switches that off. Raises Invalid when `base_url` is no http:// or https:// address, or the token
        cannot be sent."""
        self._service = AsyncConnection(base_url, token, timeout_s, retries)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections."""
        await self._service.close()

    register = _sent(workflow_requests.register)
    workflows = _sent(workflow_requests.workflows)
    workflow_summaries = _sent(workflow_requests.workflow_summaries)
    workflow = _sent(workflow_requests.workflow)
    versions = _sent(workflow_requests.versions)
    definition_schema = _sent(workflow_requests.definition_schema)
    delete_workflow = _sent(workflow_requests.delete_workflow)
    call = _sent(calls.call)
    start = _sent(requests.start)
    bulk = _sent(requests.bulk)
    get_run = _sent(requests.get_run)
    run_at = _sent(history.run_at)
    diff = _sent(history.diff)
    graph = _sent(history.graph)
    export = _sent(history.export)
    import_run = _sent(history.import_run)
    explain = _sent(operating.explain)
    summaries = _listed(operating.summaries)
    items = _listed(requests.items)
    runs = _listed(requests.runs)
    run_stats = _sent(requests.run_stats)
    output = _sent(requests.output)
    checkpoint = _sent(requests.checkpoint)
    step_input = _sent(requests.step_input)
    cancel = _sent(requests.cancel)
    cancel_all = _sent(requests.cancel_all)
    pause = _sent(requests.pause)
    resume = _sent(requests.resume)
    pause_all = _sent(requests.pause_all)
    resume_all = _sent(requests.resume_all)
    retry = _sent(requests.retry)
    retry_all = _sent(requests.retry_all)
    rerun = _sent(recovery.rerun)
    rerun_all = _sent(recovery.rerun_all)
    prune = _sent(recovery.prune)
    retry_step = _sent(recovery.retry_step)
    skip_step = _sent(recovery.skip_step)
    scheduled = _sent(requests.scheduled)
    unschedule = _sent(requests.unschedule)
    signal = _sent(requests.signal)
    approvals = _listed(requests.approvals)
    decide = _sent(requests.decide)
    decide_by_right = _sent(requests.decide_by_right)
    put_trigger = _sent(requests.put_trigger)
    set_trigger = _sent(requests.set_trigger)
    triggers = _sent(requests.triggers)
    trigger = _sent(requests.trigger)
    delete_trigger = _sent(requests.delete_trigger)
    fire_trigger = _sent(requests.fire_trigger)
    test_trigger = _sent(requests.test_trigger)
    send_event = _sent(requests.send_event)
    limits = _sent(limit_requests.limits)
    limit = _sent(limit_requests.limit)
    set_limit = _sent(limit_requests.set_limit)
    reset_limit = _sent(limit_requests.reset_limit)
    dead_letters = _listed(requests.dead_letters)
    dead_letter = _sent(requests.dead_letter)
    replay_dead_letter = _sent(requests.replay_dead_letter)
    discard_dead_letter = _sent(requests.discard_dead_letter)
    tasks = _sent(requests.tasks)
    workers = _sent(requests.workers)
    audit = _listed(access_requests.audit)
    session = _sent(access_requests.session)
    keys = _sent(access_requests.keys)
    create_key = _sent(access_requests.create_key)
    revoke_key = _sent(access_requests.revoke_key)
    doctor = _sent(operating.doctor)
    broker = _sent(operating.broker)
    settings = _sent(operating.settings)
    metrics = _sent(operating.metrics)
    telemetry = _sent(operating.telemetry)
    health = _sent(requests.health)
    ready = _sent(requests.ready)

    logs = _listed(live_requests.logs)

    def follow_logs(
        self, run_id: str, *, step: str | None = None, level: str | None = None, text: str | None = None, after: int = 0
    ) -> AsyncGenerator[LogLineView]:
        """As `logs`, then live, until the step or the run ends. A lost connection is resumed where it broke. Raises as
        `follow`, and as `logs`."""
        return streams.lines(
            self._service, live_requests.logs_url(run_id, step, level, text, 0), live_events.line, after
        )

    def chunks(self, run_id: str, *, step: str | None = None) -> AsyncGenerator[ChunkView]:
        """What the steps of a run stream, from the first chunk on and live, until the step or the run ends. Raises as
        `follow`."""
        return streams.lines(self._service, live_requests.chunks_url(run_id, step), live_events.chunk, 0)

    async def events(self, run_id: str, after: int = 0) -> list[EventView]:
        """The history of a run after stream sequence `after`, as far as it goes now. Raises NotFound."""
        return [event async for event in self._service.items(requests.events(run_id, after))]

    def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[EventView]:
        """The history of a run after stream sequence `after`, live, until the run ends. A lost connection is resumed
        where it broke: every event comes once.

        Raises NotFound, and Unavailable when the first connection cannot be made, or ten in a row cannot later.
        """
        return streams.follow(self._service, run_id, after)

    def run(
        self,
        workflow: str | Definable,
        input: object = None,  # noqa: A002
        *,
        register: bool = False,
        idempotency_key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> AsyncRunHandle:
        """Start a run of a workflow, or of the latest definition of a name, and return it as an object with `result`
        and `events`. `input` becomes JSON; bytes are JSON already. With `register` the workflow is registered before.

        With asyncio, the run starts when it, or one of its methods, is awaited. Raises Invalid for an input that JSON
        has not or that does not fit its schema, NotFound for a workflow that is not registered.
        """
        return AsyncRunHandle(
            self._service,
            wanted(workflow, input, register=register, idempotency_key=idempotency_key, labels=labels),
        )
