"""/health: is the broker there, and does its storage work? /ready: has every part of the service started?

/health/telemetry: how much telemetry is stored.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from falcon.asgi import Request, Response
from msgspec import Struct

from penstock.broker import names
from penstock.broker.connection import ApiError, Broker
from penstock.broker.leaf import Link, recall
from penstock.broker.store import Store
from penstock.broker.telemetry import StreamState
from penstock.config.background import both
from penstock.config.limits import PARTITIONS, PAYLOAD_BYTES_MAX
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Unavailable
from penstock.http import answers
from penstock.http.backend import Backend

ANSWERS_S_MAX = 0.3
API_S_MAX = 2.0


class Leaf(Struct, frozen=True):
    """The links to the hubs. One that is down is no reason to restart anything: everything here goes on without it."""

    connected: bool
    links: tuple[Link, ...]


class Status(Struct, frozen=True, omit_defaults=True):
    status: str
    leaf: Leaf | None = None


class StreamTelemetry(Struct, frozen=True):
    stream: StreamState


class TelemetryStatus(Struct, frozen=True):
    telemetry: StreamTelemetry
    status: str = "healthy"


class TelemetryHealth:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """How full the stream of telemetry is; healthy always, for nothing depends on it."""
        try:
            state = await self._backend.store.telemetry.state()
        except Unavailable:
            state = StreamState()
        answers.ok(resp, TelemetryStatus(StreamTelemetry(state)))


class Health:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """Whether the broker is connected and its storage works."""
        await _check_storage(self._backend.store, self._backend.settings)
        answers.ok(resp, Status("healthy", _leaf(self._backend.settings)))


class Ready:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """Whether every part of the service has started; what is missing, otherwise."""
        broker = self._backend.store.broker
        if self._backend.audience.dismissed:
            raise Unavailable("this front end is stopping")
        unowned, triggers = await both(_unowned(broker), _triggers_run(broker))
        problems = [f"no engine has the partitions {_ranges(unowned)}"] if unowned else []
        if not triggers:
            problems.append("no engine runs the triggers")
        if not self._backend.index.alive():
            problems.append("the run index is not followed")
        if problems:
            raise Unavailable("\n".join(problems))
        answers.ok(resp, Status("ready"))


def _leaf(settings: BrokerSettings) -> Leaf | None:
    if not (settings.embedded and settings.leaf_remotes):
        return None
    links = recall(settings)
    return Leaf(all(link.connected for link in links), links)


async def _check_storage(store: Store, settings: BrokerSettings) -> None:
    """Raises Unavailable that says why the storage does not work: no history, no answer, or full."""
    try:
        async with asyncio.timeout(API_S_MAX):
            await store.history.last_seq()
            info = await store.broker.api("INFO")
    except TimeoutError as error:
        raise Unavailable("the broker's storage gives no answer") from error
    except ApiError as error:
        raise Unavailable(f"the broker's storage does not work: {error}") from error
    used, limit = _used(info, settings)
    if limit is not None and used + PAYLOAD_BYTES_MAX > limit:
        raise Unavailable(f"the broker's storage is full: {used} of {limit} bytes are used")


async def storage(store: Store, settings: BrokerSettings) -> tuple[int, int | None]:
    """Bytes that are stored, and how many may be. Raises Unavailable, ApiError."""
    return _used(await store.broker.api("INFO", timeout_s=API_S_MAX), settings)


def _used(info: dict[str, Any], settings: BrokerSettings) -> tuple[int, int | None]:
    return info["storage"], _limit(info["limits"]["max_storage"], settings)


def _limit(account: int, settings: BrokerSettings) -> int | None:
    """Bytes that may be stored. The embedded broker's limit is the server's, of which its account knows nothing."""
    if account > 0:
        return account
    return settings.max_store_bytes if settings.embedded else None


async def _unowned(broker: Broker) -> set[int]:
    """The partitions for which no engine answers."""
    found = await broker.ask_all(names.ENGINE_PING, lambda answers: not _without(answers), ANSWERS_S_MAX)
    return _without(found)


async def _triggers_run(broker: Broker) -> bool:
    return bool(await broker.ask_all(names.TRIGGERS_PING, bool, ANSWERS_S_MAX))


def _without(answers: list[bytes]) -> set[int]:
    return set(range(PARTITIONS)).difference(*(orjson.loads(answer)["partitions"] for answer in answers))


def _ranges(numbers: set[int]) -> str:
    """`0-3, 7`."""
    starts = sorted(number for number in numbers if number - 1 not in numbers)
    ends = sorted(number for number in numbers if number + 1 not in numbers)
    return ", ".join(str(start) if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True))
