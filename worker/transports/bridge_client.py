"""The worker bridge as a worker sees it: one method per thing to ask, over kept connections.

Error answers and broken connections become the engine's errors: 400 Invalid, 401 Denied, 404 NotFound, 409 Conflict,
413 TooLarge, anything else and no answer Unavailable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import httpx2
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.broker.worker_messages import TaskPayload, WorkerRegistration
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


class PolledTask(TaskPayload, frozen=True, omit_defaults=True):
    """`task` is the task type. `checkpoint` is there only when the step has one."""

    task: str = ""
    deliveries: int = 1
    checkpoint: Raw | UnsetType = UNSET


class PollTasks(Struct, frozen=True, omit_defaults=True):
    """With `max_tasks` 0 it ends this worker's waiting polls instead."""

    task_types: Sequence[str]
    max_tasks: int
    timeout_ms: int
    worker_id: str
    worker_group: str | None = None


class Resolution(Struct, frozen=True, omit_defaults=True):
    """JSON fields are raw; what an action does not use is left out."""

    action: str
    output: Raw | UnsetType = UNSET
    error: str | None = None
    failure_type: str | None = None
    retry_after_ms: int | None = None
    name: str | None = None
    duration_ms: int | None = None
    checkpoint: Raw | UnsetType = UNSET
    data: Raw | UnsetType = UNSET
    traceback: str | None = None


class TaskAnswer(Resolution, frozen=True, omit_defaults=True, kw_only=True):
    """A resolution in an exchange."""

    task_id: str


class NextPoll(Struct, frozen=True, omit_defaults=True):
    task_types: Sequence[str]
    max_tasks: int
    timeout_ms: int
    worker_group: str | None = None


class Exchange(Struct, frozen=True):
    worker_id: str
    resolve: Sequence[TaskAnswer]
    poll: NextPoll


class ResolvedTask(Struct, frozen=True):
    """`code` and `error` are there when it was refused."""

    task_id: str
    code: int = 0
    error: str = ""


class Exchanged(Struct, frozen=True):
    resolved: list[ResolvedTask]
    tasks: list[PolledTask]


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

    async def resolve(self, task_id: str, resolution: Resolution) -> None:
        await self._ask("POST", f"/v1/tasks/{task_id}/resolve", content=msgspec.json.encode(resolution))

    async def exchange(self, request: Exchange) -> Exchanged:
        """Answers, and the next poll. Raises NotFound by a service of an older version, which does not have it."""
        timeout_s = request.poll.timeout_ms / 1000 + ANSWER_S_MAX
        answer = await self._ask("POST", "/v1/tasks/exchange", content=msgspec.json.encode(request), timeout=timeout_s)
        try:
            return _EXCHANGED.decode(answer.content)
        except msgspec.MsgspecError as error:
            raise errors.Unavailable(f"the service answered an exchange with what is none: {error}") from error

    async def signal(self, run_id: str, name: str, timeout_ms: int) -> bytes | None:
        """The payload of a run's signal; None when there was none for that long."""
        timeout_s = timeout_ms / 1000 + ANSWER_S_MAX
        answer = await self._ask("GET", f"/v1/runs/{run_id}/signals/{name}?timeout_ms={timeout_ms}", timeout=timeout_s)
        return None if answer.status_code == NO_CONTENT else bytes(answer.content)

    async def send_signal(self, run_id: str, name: str, payload: bytes) -> None:
        await self._ask("POST", f"/v1/runs/{run_id}/signals/{name}", content=payload)

    @asynccontextmanager
    async def connected(self, entry: WorkerRegistration) -> AsyncIterator[AsyncIterator[bytes]]:
        """Registered for the time of the block; what it gives is a sign of life every few seconds. Raises as all else,
        also there."""
        timeout = httpx2.Timeout(ANSWER_S_MAX, read=SILENCE_S_MAX)
        body = msgspec.json.encode(_announced(entry))
        try:
            async with self._http.stream("POST", "/v1/workers/connect", content=body, timeout=timeout) as answer:
                if answer.status_code != httpx2.codes.OK:
                    await answer.aread()
                    _refuse(answer)
                yield answer.aiter_raw()
        except (httpx2.TransportError, httpx2.StreamError) as error:
            raise errors.Unavailable(f"the connection to the service broke: {error or type(error).__name__}") from error

    async def _ask(
        self, method: str, path: str, timeout: float = ANSWER_S_MAX, content: bytes = b""
    ) -> httpx2.Response:
        try:
            answer = await self._http.request(method, path, content=content, timeout=timeout)
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise errors.Unavailable(
                f"no answer from {self._http.base_url}: {error or type(error).__name__}"
            ) from error
        if not answer.is_success:
            _refuse(answer)
        return answer


@asynccontextmanager
async def open_client(url: str, token: str | None) -> AsyncIterator[BridgeClient]:
    """A client for the time of the block. Raises Invalid when `url` is no http:// or https:// address."""
    base = _checked(url)
    async with httpx2.AsyncClient(
        base_url=base,
        headers={"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})},
        limits=httpx2.Limits(max_connections=None, keepalive_expiry=5.0),
        verify=base.scheme == "https",
        trust_env=base.host not in ("localhost", "127.0.0.1", "::1"),  # no proxy to ourselves
    ) as http:
        yield BridgeClient(http)


def refusal_of(resolved: ResolvedTask) -> errors.PenstockError | None:
    """What `BridgeClient.resolve` would have raised."""
    return ERRORS.get(resolved.code, errors.Unavailable)(resolved.error) if resolved.code else None


def _announced(entry: WorkerRegistration) -> dict[str, Any]:
    """What the service does not fill in by itself."""
    found: dict[str, Any] = msgspec.to_builtins(entry)
    return {name: value for name, value in found.items() if name not in ("transport", "last_seen")}


def _refuse(answer: httpx2.Response) -> NoReturn:
    text = "\n".join(shown(line) for line in answer.text[:TEXT_MAX].strip().splitlines()) or "no text"
    kind = ERRORS.get(answer.status_code, errors.Unavailable)
    raise kind(text if kind is not errors.Unavailable else f"{answer.status_code}: {text}")


def _checked(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise errors.Invalid(f"{text!r} is no address of a service: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise errors.Invalid(f"{text!r} is no address of a service: it must begin with http:// or https://")
    return url
