"""The worker bridge as a worker sees it: one method per thing to ask, over kept connections.

Error answers and broken connections become the engine's errors: 400 Invalid, 401 Denied, 404 NotFound, 409 Conflict,
413 TooLarge, anything else and no answer Unavailable. It shares with the client of the API how the service is connected
to, and what a missing answer means. An AsyncConnection it is not: a worker asks again after every answer that it does
not know, such as a proxy's 502, where the client gives up; and each request has a time limit of its own.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import NoReturn

import httpx2
import msgspec
from msgspec import UnsetType

from penstock.broker.worker_messages import CancelledTask, WorkerRegistration
from penstock.broker.worker_protocol.bridge_messages import (
    ConnectWorker,
    Exchanged,
    ExchangeTasks,
    PolledTask,
    PollTasks,
    ResolvedTask,
    ResolveTask,
)
from penstock.client.address import options
from penstock.client.responses import problem, translated
from penstock.engine import errors
from penstock.engine.definition.identifiers import shown

ANSWER_S_MAX = 20.0
SILENCE_S_MAX = 20.0  # of the stream, which has a line every 5 s
NO_CONTENT = 204
TEXT_MAX = 500

ERRORS: Mapping[int, type[errors.PenstockError]] = {
    400: errors.Invalid,
    401: errors.Denied,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
}


_CANCEL = re.compile(rb"event: cancel\ndata: (.*)")
_CANCELLED = msgspec.json.Decoder(CancelledTask)
_EXCHANGED = msgspec.json.Decoder(Exchanged)
_TASKS = msgspec.json.Decoder(list[PolledTask])


class BridgeClient:
    """Owned by `open_client`."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def poll(self, request: PollTasks) -> list[PolledTask]:
        timeout_s = request.timeout_ms / 1000 + ANSWER_S_MAX
        answer = await self._ask("POST", "/v1/tasks/poll", content=msgspec.json.encode(request), timeout=timeout_s)
        try:
            return _TASKS.decode(answer.content)
        except msgspec.MsgspecError as error:
            raise errors.Unavailable(f"the service answered a poll with what are no tasks: {error}") from error

    async def resolve(self, task_id: str, resolution: ResolveTask) -> None:
        await self._ask("POST", f"/v1/tasks/{task_id}/resolve", content=msgspec.json.encode(resolution))

    async def exchange(self, request: ExchangeTasks) -> Exchanged:
        """Send reports, and poll. Raises NotFound from a service of an older version, which does not have this
        request."""
        timeout_s = (request.poll.timeout_ms if request.poll else 0) / 1000 + ANSWER_S_MAX
        answer = await self._ask("POST", "/v1/tasks/exchange", content=msgspec.json.encode(request), timeout=timeout_s)
        try:
            return _EXCHANGED.decode(answer.content)
        except msgspec.MsgspecError as error:
            raise errors.Unavailable(f"the service answered an exchange with what is none: {error}") from error

    async def signal(self, run_id: str, name: str, timeout_ms: int) -> bytes | None:
        """The payload of a run's signal; None when there was none in time."""
        timeout_s = timeout_ms / 1000 + ANSWER_S_MAX
        answer = await self._ask("GET", f"/v1/runs/{run_id}/signals/{name}?timeout_ms={timeout_ms}", timeout=timeout_s)
        return None if answer.status_code == NO_CONTENT else bytes(answer.content)

    async def send_signal(self, run_id: str, name: str, payload: bytes) -> None:
        await self._ask("POST", f"/v1/runs/{run_id}/signals/{name}", content=payload)

    @asynccontextmanager
    async def connected(self, entry: WorkerRegistration) -> AsyncIterator[AsyncIterator[CancelledTask | None]]:
        """Registered for the time of the block; yields executions that are cancelled, and None every few seconds while
        the stream is alive. Raises the errors of the other methods, also while it iterates."""
        timeout = httpx2.Timeout(ANSWER_S_MAX, read=SILENCE_S_MAX)
        body = msgspec.json.encode(_announced(entry))
        try:
            async with self._http.stream("POST", "/v1/workers/connect", content=body, timeout=timeout) as answer:
                if answer.status_code != httpx2.codes.OK:
                    await answer.aread()
                    _refuse(answer)
                yield _cancelled(answer.aiter_raw())
        except (httpx2.TransportError, httpx2.StreamError) as error:
            raise errors.Unavailable(f"the connection to the service broke: {error or type(error).__name__}") from error

    async def _ask(
        self, method: str, path: str, timeout: float = ANSWER_S_MAX, content: bytes = b""
    ) -> httpx2.Response:
        with translated():
            answer = await self._http.request(method, path, content=content, timeout=timeout)
        if not answer.is_success:
            _refuse(answer)
        return answer


@asynccontextmanager
async def open_client(url: str, token: str | None) -> AsyncIterator[BridgeClient]:
    """A client for the time of the block. Raises Invalid when `url` is no http:// or https:// address, or the token
    cannot be sent."""
    limits = httpx2.Limits(max_connections=None, keepalive_expiry=5.0)
    async with httpx2.AsyncClient(**options(url, token, ANSWER_S_MAX), limits=limits) as http:
        http.headers["Content-Type"] = "application/json"
        yield BridgeClient(http)


def refusal_of(resolved: ResolvedTask) -> errors.PenstockError | None:
    """The error that `BridgeClient.resolve` would have raised."""
    if isinstance(resolved.code, UnsetType):
        return None
    return ERRORS.get(resolved.code, errors.Unavailable)(resolved.error or "")


async def _cancelled(chunks: AsyncIterator[bytes]) -> AsyncIterator[CancelledTask | None]:
    """What is cancelled, out of the server-sent events of a connect stream; None for each chunk."""
    rest = b""
    async for chunk in chunks:
        yield None
        *events, rest = (rest + chunk).split(b"\n\n")
        for event in events:
            if found := _CANCEL.fullmatch(event):
                with suppress(msgspec.MsgspecError):  # of a newer version: the heartbeat says it, too
                    yield _CANCELLED.decode(found[1])


def _announced(entry: WorkerRegistration) -> ConnectWorker:
    """What the service does not fill in by itself."""
    return ConnectWorker(
        worker_id=entry.worker_id,
        task_types=list(entry.task_types),
        max_tasks=entry.max_tasks,
        language=entry.language,
        metadata=dict(entry.metadata),
        hostname=entry.hostname,
        pid=entry.pid,
        version=entry.version,
        worker_group=entry.worker_group or None,
    )


def _refuse(answer: httpx2.Response) -> NoReturn:
    text = "\n".join(shown(line) for line in "\n".join(problem(answer).problems)[:TEXT_MAX].splitlines())
    kind = ERRORS.get(answer.status_code, errors.Unavailable)
    raise kind(text if kind is not errors.Unavailable else f"{answer.status_code}: {text}")
