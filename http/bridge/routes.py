"""/v1/workers, /v1/tasks, /v1/runs: a responder for each path of the worker bridge.

A worker over HTTP connects, polls for tasks and resolves them. Spec: Worker bridge; Protocol: HTTP answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing

from falcon import HTTP_204
from falcon.asgi import Request, Response
from msgspec import Struct

from penstock.actors.control import run_operations
from penstock.broker.worker_messages import WorkerRegistration
from penstock.broker.worker_protocol import signals
from penstock.broker.worker_protocol.bridge_messages import Exchanged, PolledTask, PollTasks
from penstock.broker.worker_protocol.cancels import cancellations
from penstock.broker.worker_protocol.registrations import register
from penstock.config.limits import SIGNAL_BYTES_MAX
from penstock.config.process.background import start
from penstock.config.process.crash_points import reached
from penstock.engine.errors import PenstockError, Unavailable
from penstock.http.backend import Backend
from penstock.http.bridge import exchange, requests
from penstock.http.bridge.connection import CancelInbox, heartbeat_stream
from penstock.http.bridge.departures import Departures
from penstock.http.bridge.service import Bridge, OpenBridge
from penstock.http.messages import bodies, params, responses
from penstock.http.messages.presence import Presence

WATCHED_AFTER_S = 0.05  # a poll: a task that it takes before that is given back if the client has gone
STREAM_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Resolved(Struct, frozen=True):
    status: str = "ok"


class SentSignal(Struct, frozen=True):
    run_id: str
    signal: str
    status: str = "sent"


class ConnectResource:
    def __init__(self, backend: Backend, here: OpenBridge) -> None:
        self._backend, self._here = backend, here

    async def on_post(self, req: Request, resp: Response) -> None:
        """Register a worker for as long as it keeps this stream of heartbeats open."""
        bucket, departures = self._backend.store.workers, self._here.bridge.departures
        entry = await requests.connection(req)
        revision = await register(bucket, entry)
        reached("bridge.registered")
        resp.set_headers(STREAM_HEADERS)
        resp.stream = self._stream(req, entry, revision, departures)

    async def _stream(
        self, req: Request, entry: WorkerRegistration, revision: int, departures: Departures
    ) -> AsyncGenerator[bytes]:
        store, cancels = self._backend.store, CancelInbox()
        async with (
            self._backend.waiters.presence(req) as client,
            departures.stream(entry) as stale,
            cancellations(store.broker, entry.worker_id, cancels.put),
        ):
            signs = heartbeat_stream(store.workers, entry, revision, client.over, stale, cancels)
            async with aclosing(signs):  # the registration ends first: receivers of the departure read it
                async for line in signs:
                    yield line


class PollResource:
    def __init__(self, backend: Backend, here: OpenBridge) -> None:
        self._backend, self._here = backend, here

    async def on_post(self, req: Request, resp: Response) -> None:
        """Tasks of some types, as soon as there are any; an empty array when there were none in time."""
        request, bridge = await requests.poll(req), self._here.bridge
        if request.max_tasks == 0 and request.worker_id is not None:
            await bridge.release(request.worker_id)
            return responses.ok(resp, [])
        async with self._backend.waiters.presence(req, WATCHED_AFTER_S) as client:
            return responses.ok(resp, await bridge.poll(request, client))


class ResolveResource:
    def __init__(self, here: OpenBridge) -> None:
        self._here = here

    async def on_post(self, req: Request, resp: Response, task_id: str) -> None:
        """Report the result of a polled task, or that it is still in progress."""
        found, body = params.task_id(task_id), await bodies.read(req)
        await self._here.bridge.resolver.resolve(found, requests.action_in(body), body)
        responses.ok(resp, Resolved())


class ExchangeResource:
    def __init__(self, backend: Backend, here: OpenBridge) -> None:
        self._backend, self._here = backend, here

    async def on_post(self, req: Request, resp: Response) -> None:
        """Report results and poll for the next tasks, in one request; each report is carried out separately."""
        request, bridge = await exchange.read(req), self._here.bridge
        async with self._backend.waiters.presence(req, WATCHED_AFTER_S) as client:
            resolved = await exchange.resolve_all(bridge.resolver, request.answers)
            tasks = await _next(bridge, request.poll, client, answered=bool(resolved))
            responses.ok(resp, Exchanged(resolved, tasks))


class RunSignalResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str, name: str) -> None:
        """The payload of a run's signal, byte for byte, as soon as it exists; 204 when there was none in time."""
        store, found, signal = self._backend.store, params.run_id(run_id), params.signal_name(name)
        timeout_s = params.timeout_s(req)
        async with self._backend.waiters.presence(req) as client:
            payload = await signals.get(store, found, signal)
            if payload is None:
                payload = await _within(timeout_s, signals.wait(store, found, signal), client.over)
        if payload is None:
            resp.status = HTTP_204
        else:
            resp.data, resp.content_type = (
                payload,
                "application/json" if bodies.is_json(payload) else "application/octet-stream",
            )

    async def on_post(self, req: Request, resp: Response, run_id: str, name: str) -> None:
        """Send a signal to a run; the body is its payload."""
        store, found, signal = self._backend.store, params.run_id(run_id), params.signal_name(name)
        await run_operations.signal(store, found, signal, await bodies.read(req, SIGNAL_BYTES_MAX))
        responses.ok(resp, SentSignal(found, signal))


async def _next(bridge: Bridge, poll: PollTasks | None, client: Presence, *, answered: bool) -> list[PolledTask]:
    """The tasks of the next poll; none without a poll. After `answered` reports, a failed poll also gives none, so that
    their results are returned."""
    try:
        return [] if poll is None else await bridge.poll(poll, client)
    except Unavailable:
        if not answered:
            raise
        return []


async def _within(seconds: float, wait: Coroutine[None, None, bytes], over: asyncio.Event) -> bytes | None:
    """The result of an awaitable; None when the time is over, or the client has disconnected."""
    waiting, leaving = start(wait, name="signal_wait", expected=PenstockError), start(over.wait(), name="signal_wait")
    try:
        await asyncio.wait((waiting, leaving), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else None
    finally:
        waiting.cancel()
        leaving.cancel()
