"""The client of the load: the operations that it needs, typed, over a Pool."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from .connection import Answer, LostError, Pool
from .framing import Happenings

ENDED = frozenset({"completed", "failed", "cancelled"})
ENDING = frozenset({"workflow.completed", "workflow.failed", "workflow.cancelled"})
STREAM = b"Accept: text/event-stream\r\n"

T = TypeVar("T")


class RefusedError(Exception):
    """The service answered with an error; the text is its status and what it said."""


class _Started(Struct, frozen=True):
    run_id: str


class _StartedAll(Struct, frozen=True):
    run_ids: list[str]


class _Run(Struct, frozen=True):
    run_id: str
    status: str


class _Stats(Struct, frozen=True):
    total: int


class Holder(Struct, frozen=True):
    run_id: str


class Limit(Struct, frozen=True):
    holders: list[Holder]
    waiting_total: int


_LIMIT = msgspec.json.Decoder(Limit)
_STARTED = msgspec.json.Decoder(_Started)
_STATS = msgspec.json.Decoder(_Stats)
_STARTED_ALL = msgspec.json.Decoder(_StartedAll)
_RUN = msgspec.json.Decoder(_Run)
_RUNS = msgspec.json.Decoder(list[_Run])


def address(url: str) -> tuple[str, int]:
    """Host and port. Raises ValueError for what is no http:// address."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"{url} is no http:// address")
    return parts.hostname, parts.port or 80


class Client:
    """Owned by one load; every method raises LostError, or RefusedError for an error answer."""

    def __init__(self, url: str, token: str | None = None) -> None:
        """Raises ValueError as `address`."""
        self._pool = Pool(*address(url), token)

    def close(self) -> None:
        self._pool.close()

    async def ready(self) -> bool:
        return (await self._pool.request("GET", "/ready")).status == 200

    async def register(self, definition: bytes) -> None:
        _checked(await self._pool.request("POST", "/workflows", definition))

    async def start(self, workflow: str, value: bytes, run_at: str | None = None) -> str:
        """Start one run, now or at an RFC 3339 time, and return its id."""
        at = b"" if run_at is None else b',"run_at":"%b"' % run_at.encode()
        body = b'{"workflow":"%b","input":%b%b}' % (workflow.encode(), value, at)
        return _read(await self._pool.request("POST", "/runs", body), _STARTED).run_id

    async def start_all(self, workflow: str, values: Sequence[bytes]) -> list[str]:
        """Start up to 1,000 runs in one request; ids in the order of the inputs."""
        body = b'{"workflow_id":"%b","inputs":[%b]}' % (workflow.encode(), b",".join(values))
        return _read(await self._pool.request("POST", "/runs/bulk", body), _STARTED_ALL).run_ids

    async def call(self, workflow: str, value: bytes) -> None:
        """Start one run and wait for its output."""
        answer = _checked(await self._pool.request("POST", f"/workflows/{workflow}/call", value))
        if answer.status != 200:
            raise RefusedError(f"{answer.status} {answer.body[:200].decode(errors='replace').strip()}")

    async def send_event(self, name: str, body: bytes) -> None:
        _checked(await self._pool.request("POST", f"/events/{name}", body))

    async def rerun(self, body: bytes) -> bytes:
        """Start many runs again in one request."""
        return _checked(await self._pool.request("POST", "/runs/rerun", body)).body

    async def prune(self, body: bytes) -> bytes:
        """Remove many runs in one request."""
        return _checked(await self._pool.request("POST", "/runs/prune", body)).body

    async def pause(self, body: bytes) -> bytes:
        """Pause many runs in one request."""
        return _checked(await self._pool.request("POST", "/runs/pause", body)).body

    async def resume(self, body: bytes) -> bytes:
        """Let many runs go on in one request."""
        return _checked(await self._pool.request("POST", "/runs/resume", body)).body

    async def cancel(self, run_id: str) -> None:
        _checked(await self._pool.request("POST", f"/runs/{run_id}/cancel"))

    async def run_at(self, run_id: str, seq: int) -> None:
        """Ask for the run as it was when the log was as long."""
        _checked(await self._pool.request("GET", f"/runs/{run_id}?at={seq}"))

    async def metrics(self, _: int) -> None:
        """Read the metrics of the whole service."""
        _checked(await self._pool.request("GET", "/metrics"))

    async def runs(self, query: str) -> None:
        """Read a list of runs."""
        _checked(await self._pool.request("GET", f"/runs?{query}"))

    async def completed(self, workflow: str) -> int:
        """How many runs of a workflow have completed, as the run index knows."""
        path = f"/runs/stats?workflow={quote(workflow)}&status=completed"
        return _read(await self._pool.request("GET", path), _STATS).total

    async def explain(self, run_id: str) -> None:
        """Ask why a run waits."""
        _checked(await self._pool.request("GET", f"/runs/{run_id}/explain"))

    async def limit(self, scope: str) -> Limit:
        """Who holds a slot of a limit without a key, and how many wait."""
        return _read(await self._pool.request("GET", f"/limits/{quote(scope)}"), _LIMIT)

    async def hold_back(self, scope: str, per: str | None = None) -> None:
        """Let a limit, or with `per` a rate, allow nothing."""
        nothing = {"limit": 0} if per is None else {"rate_limit": {"limit": 0, "per": per}}
        _checked(await self._pool.request("PUT", f"/limits/{quote(scope)}", msgspec.json.encode(nothing)))

    async def let_go(self, scope: str) -> None:
        """Let what is registered of a limit count again."""
        _checked(await self._pool.request("DELETE", f"/limits/{quote(scope)}"))

    async def status(self, run_id: str) -> str:
        return _read(await self._pool.request("GET", f"/runs/{run_id}"), _RUN).status

    async def status_at_end(self, run_id: str) -> str:
        """The run's status once it has ended; the service holds its answer back until then."""
        while True:
            status = _read(await self._pool.request("GET", f"/runs/{run_id}?wait_ms=20000"), _RUN).status
            if status in ENDED:
                return status

    async def listed(self, workflow: str, status: str, after: str, limit: int) -> list[str]:
        """Ids of runs in this status, created since `after` (RFC 3339), newest first."""
        query = f"workflow={workflow}&status={status}&after={quote(after)}&limit={limit}"
        return [run.run_id for run in _read(await self._pool.request("GET", f"/runs?{query}"), _RUNS)]

    async def list(self, query: str) -> Answer:
        """A list of runs as it was answered, also when it was refused."""
        return await self._pool.request("GET", f"/runs?{query}")

    async def ended(self, run_id: str) -> str:
        """Follow the run's events until one ends it, and return that event's type."""
        happenings = Happenings()
        seen: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def take(piece: bytes) -> None:
            for happening in happenings.feed(piece):
                if happening.type in ENDING and not seen.done():
                    seen.set_result(happening.type)

        whole = await self._pool.stream(f"/runs/{run_id}/events", STREAM, take)
        whole.add_done_callback(lambda _: _give_up(seen, whole))
        try:
            return await seen
        except asyncio.CancelledError:
            whole.cancel()
            raise


def _give_up(seen: asyncio.Future[str], whole: asyncio.Future[Answer]) -> None:
    """The stream is over; without an event that ends the run, its reader learns why."""
    if whole.cancelled() or seen.done():
        return
    error = whole.exception()
    seen.set_exception(error or LostError(f"the event stream ended early, with status {whole.result().status}"))


def _read(answer: Answer, decoder: msgspec.json.Decoder[T]) -> T:
    return decoder.decode(_checked(answer).body)


def _checked(answer: Answer) -> Answer:
    if answer.status >= 400:
        raise RefusedError(f"{answer.status} {answer.body[:200].decode(errors='replace').strip()}")
    return answer
