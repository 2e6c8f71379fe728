"""The asyncio client of the HTTP API: the methods of client.py, as coroutines and asynchronous iterators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from penstock.client import calls, requests, workflow_requests
from penstock.client.address import TIMEOUT_S
from penstock.client.api_request import ApiRequest, PagedRequest
from penstock.client.async_connection import AsyncConnection
from penstock.client.following import Reconnects
from penstock.client.methods import documented
from penstock.client.responses import LostError
from penstock.client.views import EventView
from penstock.engine.errors import Unavailable

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

    A request that is not answered within `timeout_s` seconds raises Unavailable: what the service did is unknown.
    """

    def __init__(self, base_url: str, token: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """`token` is the service's API token. Raises Invalid when `base_url` is no http:// or https:// address, or the
        token cannot be sent."""
        self._service = AsyncConnection(base_url, token, timeout_s)

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
    workflow = _sent(workflow_requests.workflow)
    versions = _sent(workflow_requests.versions)
    delete_workflow = _sent(workflow_requests.delete_workflow)
    call = _sent(calls.call)
    start = _sent(requests.start)
    bulk = _sent(requests.bulk)
    run = _sent(requests.run)
    items = _listed(requests.items)
    runs = _listed(requests.runs)
    output = _sent(requests.output)
    cancel = _sent(requests.cancel)
    cancel_all = _sent(requests.cancel_all)
    retry = _sent(requests.retry)
    retry_all = _sent(requests.retry_all)
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
    dead_letters = _listed(requests.dead_letters)
    dead_letter = _sent(requests.dead_letter)
    replay_dead_letter = _sent(requests.replay_dead_letter)
    discard_dead_letter = _sent(requests.discard_dead_letter)
    tasks = _sent(requests.tasks)
    workers = _sent(requests.workers)
    health = _sent(requests.health)
    ready = _sent(requests.ready)

    async def events(self, run_id: str, after: int = 0) -> list[EventView]:
        """The history of a run after stream sequence `after`, as far as it goes now. Raises NotFound."""
        return [event async for event in self._service.items(requests.events(run_id, after))]

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[EventView]:
        """The history of a run after stream sequence `after`, live, until the run ends. A lost connection is resumed
        where it broke.

        Raises NotFound, and Unavailable when the first connection fails, or RECONNECTS_MAX in a row do later.
        """
        reconnects = Reconnects()
        while True:
            try:
                async with self._service.stream(run_id, after) as stream:
                    reconnects.connected()
                    async for event in stream:
                        after = event.seq
                        yield event
                if (await self.run(run_id)).ended:
                    for event in await self.events(run_id, after):
                        yield event
                    return
            except LostError:
                pass
            except Unavailable as error:
                reconnects.failed(error)
            await asyncio.sleep(reconnects.pause_s)
