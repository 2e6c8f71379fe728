"""A client of the HTTP API, for the command line and for scripts: blocking, typed, one method per thing to ask.

Error answers and failed connections become the engine's errors: 400 Invalid, 401 Denied, 404 NotFound, 409 Conflict,
413 TooLarge, 503 and no answer Unavailable, anything else PenstockError.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import httpx2
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.config.limits import BODY_BYTES_MAX, RUNS_LISTED_DEFAULT
from penstock.engine import errors
from penstock.engine.definitions import WorkflowDef, from_json
from penstock.http.client_views import CancelledRun, EventView, Registered, RunView, StartedRun, StartedRuns, WorkerView

TIMEOUT_S = 30.0
STREAM_SILENCE_S_MAX = 60.0  # then the connection counts as lost
RECONNECT_S = 0.2
RECONNECT_S_MAX = 5.0
RECONNECTS_MAX = 10  # in a row, without one that succeeds

ERRORS: Mapping[int, type[errors.PenstockError]] = {
    401: errors.Denied,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
    503: errors.Unavailable,
}

T = TypeVar("T")


class _Start(Struct, frozen=True):
    workflow: str
    input: Raw | UnsetType = UNSET


class _Bulk(Struct, frozen=True):
    workflow_id: str
    inputs: Sequence[Raw]


class _Cancel(Struct, frozen=True):
    reason: str


class Client:
    """Owned by its caller, a context manager; one connection pool for its lifetime. Not for use by several threads at once."""

    def __init__(self, base_url: str, token: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """Raises Invalid when `base_url` is no http:// or https:// address."""
        self._timeout_s = timeout_s
        url = _checked_url(base_url)
        self._http = httpx2.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=timeout_s,
            verify=url.scheme == "https",
            trust_env=url.host not in ("localhost", "127.0.0.1", "::1"),  # no proxy to ourselves
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def register(self, definition: bytes) -> Registered:
        """Register or replace a workflow; `definition` is its JSON."""
        return _decode(self._send("POST", "/workflows", content=definition), Registered)

    def workflows(self) -> list[WorkflowDef]:
        return [from_json(bytes(body)) for body in _decode(self._send("GET", "/workflows"), list[Raw])]

    def workflow(self, name: str) -> WorkflowDef:
        return _decode(self._send("GET", f"/workflows/{_segment(name)}"), WorkflowDef)

    def start(self, workflow: str, input: bytes | None = None, *, idempotency_key: str | None = None) -> StartedRun:  # noqa: A002
        """Start a run now; `input` is JSON. After Unavailable, only the same `idempotency_key` makes a second try safe."""
        body = _Start(workflow, UNSET if input is None else Raw(input))
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key is not None else {}
        return _decode(self._send("POST", "/runs", content=msgspec.json.encode(body), headers=headers), StartedRun)

    def bulk(self, workflow: str, inputs: Sequence[bytes]) -> StartedRuns:
        """Start one run per input, all or none, at most 1000; the run ids stand in the order of `inputs`."""
        body = _Bulk(workflow, [Raw(input) for input in inputs])  # noqa: A001
        return _decode(self._send("POST", "/runs/bulk", content=msgspec.json.encode(body)), StartedRuns)

    def run(self, run_id: str) -> RunView:
        return _decode(self._send("GET", f"/runs/{_segment(run_id)}"), RunView)

    def runs(
        self,
        *,
        workflow: str | None = None,
        status: str | None = None,
        after: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> Iterator[RunView]:
        """Newest first, at most `limit` in all; pages are fetched as they are needed. `after` and `before` are RFC 3339."""
        page = min(limit or RUNS_LISTED_DEFAULT, RUNS_LISTED_DEFAULT)
        query = {"workflow": workflow, "status": status, "after": after, "before": before, "limit": str(page)}
        url = httpx2.URL("/runs", params={name: value for name, value in query.items() if value is not None})
        for index, run in enumerate(self._pages(url), start=1):
            yield run
            if index == limit:
                return

    def cancel(self, run_id: str, reason: str | None = None) -> CancelledRun:
        body = b"" if reason is None else msgspec.json.encode(_Cancel(reason))
        return _decode(self._send("POST", f"/runs/{_segment(run_id)}/cancel", content=body), CancelledRun)

    def events(self, run_id: str, after: int = 0) -> list[EventView]:
        """The history after stream sequence `after`, as far as it goes now."""
        response = self._send("GET", f"/runs/{_segment(run_id)}/events?after={after}")
        return _decode(response, list[EventView])

    def follow(self, run_id: str, after: int = 0) -> Iterator[EventView]:
        """The history after stream sequence `after`, live, until the run ends. A lost connection is resumed where it broke.

        Raises Unavailable when the first connection fails, or RECONNECTS_MAX in a row do later.
        """
        failures = RECONNECTS_MAX  # the first connection has no second try
        while True:
            try:
                with self._stream(run_id, after) as stream:
                    failures = 0
                    for event in stream:
                        after = event.seq
                        yield event
                if self.run(run_id).ended:
                    yield from self.events(run_id, after)
                    return
            except _LostError:
                pass
            except errors.Unavailable:
                failures += 1
                if failures > RECONNECTS_MAX:
                    raise
            time.sleep(min(RECONNECT_S * 2**failures, RECONNECT_S_MAX))

    def workers(self) -> list[WorkerView]:
        """Who is registered now. Workers of any make write there: registrations that break the protocol are left out."""
        found = (_worker(body) for body in _decode(self._send("GET", "/workers"), list[Raw]))
        return [worker for worker in found if worker is not None]

    def health(self) -> None:
        """Returns when the service is alive and its broker connected. Raises Unavailable otherwise."""
        self._send("GET", "/health")

    def ready(self) -> None:
        """Returns when every part of the service has started. Raises Unavailable otherwise."""
        self._send("GET", "/ready")

    def _pages(self, url: httpx2.URL) -> Iterator[RunView]:
        following: httpx2.URL | None = url
        while following is not None:
            response = self._send("GET", following)
            yield from _decode(response, list[RunView])
            link = response.links.get("next")
            following = response.url.join(link["url"]) if link else None

    @contextmanager
    def _stream(self, run_id: str, after: int) -> Iterator[Iterator[EventView]]:
        """The events of one connection. Raises Unavailable when it is not made, _LostError when it breaks."""
        timeout = httpx2.Timeout(self._timeout_s, read=STREAM_SILENCE_S_MAX)
        headers = {"Last-Event-ID": str(after)} if after else {}
        path = f"/runs/{_segment(run_id)}/events"
        with _translated(), self._http.sse(path, headers=headers, timeout=timeout, max_event_size=BODY_BYTES_MAX) as source:
            if source.response.status_code != httpx2.codes.OK:
                source.response.read()
            _check(source.response)
            yield _events(source)

    def _send(self, method: str, url: str | httpx2.URL, *, content: bytes = b"", headers: Mapping[str, str] = {}) -> httpx2.Response:
        with _translated():
            response = self._http.request(method, url, content=content, headers=headers)
        _check(response)
        return response


class _LostError(Exception):
    """A stream broke after it had begun."""


def _events(source: httpx2.EventSource) -> Iterator[EventView]:
    try:
        for message in source:
            if message.id:
                yield _event(message)
    except (httpx2.SSEError, msgspec.MsgspecError, ValueError) as error:
        raise errors.PenstockError(f"{source.response.url} answered a stream that this client cannot read: {error}") from error
    except httpx2.TransportError as error:
        raise _LostError from error


def _event(message: httpx2.ServerSentEvent) -> EventView:
    fields = msgspec.json.decode(message.data, type=dict[str, Raw])
    return msgspec.json.decode(msgspec.json.encode({**fields, "seq": int(message.id)}), type=EventView)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise errors.Unavailable(f"the service cannot be reached: {_text(error)}") from error
    except httpx2.RequestError as error:
        raise errors.Unavailable(f"no answer from the service, what it did is unknown: {_text(error)}") from error


def _text(error: httpx2.RequestError) -> str:
    return f"{error.request.url}: {str(error) or type(error).__name__}"


def _check(response: httpx2.Response) -> None:
    """Raise the error that an answer stands for."""
    if response.is_success:
        return
    text = response.text.strip() or f"the service answered {response.status_code} {response.reason_phrase}"
    if response.status_code == httpx2.codes.BAD_REQUEST:
        raise errors.Invalid(*text.splitlines())
    raise ERRORS.get(response.status_code, errors.PenstockError)(text)


def _decode(response: httpx2.Response, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as error:
        raise errors.PenstockError(f"{response.url} answered what this client cannot read: {error}") from error


def _worker(body: Raw) -> WorkerView | None:
    try:
        return msgspec.json.decode(body, type=WorkerView)
    except msgspec.ValidationError:
        return None


def _checked_url(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise errors.Invalid(f"{text!r} is no address of a service: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise errors.Invalid(f"{text!r} is no address of a service: it must begin with http:// or https://")
    return url


def _segment(name: str) -> str:
    """One segment of a path, whatever `name` holds."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")
