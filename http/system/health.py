"""/health: whether the broker is connected and its storage works. /ready: whether every part of the service has
started. /health/telemetry: how much telemetry is stored."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TypeVar

import msgspec
from falcon.asgi import Request, Response
from msgspec import Struct

from penstock.broker import names
from penstock.broker.embedded.leaf import Link, read_report
from penstock.broker.nats.connection import Broker
from penstock.broker.streams.telemetry import StreamState
from penstock.client.operating.views import StreamTelemetry, TelemetryStatus, TelemetryStream
from penstock.config.limits import PARTITIONS
from penstock.config.process.background import both
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Unavailable
from penstock.http.backend import Backend
from penstock.http.messages import responses
from penstock.http.system.storage import StorageHealth

ANSWERS_S_MAX = 0.3

T = TypeVar("T")


class Leaf(Struct, frozen=True):
    """The links to the hubs. A link that is down needs no restart: everything here continues without it."""

    connected: bool
    links: tuple[Link, ...]


class HealthStatus(Struct, frozen=True, omit_defaults=True):
    status: str
    leaf: Leaf | None = None


class TelemetryHealth:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """How full the stream of telemetry is; always healthy, because nothing depends on it."""
        try:
            state = await self._backend.store.telemetry.state()
        except Unavailable:
            state = StreamState()
        stream = TelemetryStream(state.messages, state.bytes, state.percent)
        responses.ok(resp, TelemetryStatus(StreamTelemetry(stream)))


class Health:
    def __init__(self, backend: Backend, storage: StorageHealth) -> None:
        self._backend, self._storage = backend, storage

    async def on_get(self, req: Request, resp: Response) -> None:
        """Whether the broker is connected and its storage works."""
        problem = await self._storage.problem()
        if problem:
            raise Unavailable(problem)
        responses.ok(resp, HealthStatus("healthy", _leaf(self._backend.settings)))


class Owned(Struct, frozen=True):
    """The answer of a shard, of any version; any client of the broker may answer, too."""

    partitions: frozenset[int]


class Running(Struct, frozen=True):
    """The answer of a process that runs triggers: an object, of which nothing is read."""


class Ready:
    def __init__(self, backend: Backend, storage: StorageHealth) -> None:
        self._backend, self._storage = backend, storage

    async def on_get(self, req: Request, resp: Response) -> None:
        """Whether every part of the service has started; what is missing, otherwise."""
        broker = self._backend.store.broker
        if self._backend.waiters.stopped:
            raise Unavailable("this front end is stopping")
        storage = await self._storage.problem()
        missing, triggers = await both(unowned(broker), triggers_run(broker))
        problems = [storage] if storage else []
        if missing:
            problems.append(f"no engine has the partitions {ranges(missing)}")
        if not triggers:
            problems.append("no engine runs the triggers")
        if not self._backend.index.alive():
            problems.append("the run index is not followed")
        if problems:
            raise Unavailable("\n".join(problems))
        responses.ok(resp, HealthStatus("ready"))


def _leaf(settings: BrokerSettings) -> Leaf | None:
    if not (settings.embedded and settings.leaf_remotes):
        return None
    links = read_report(settings)
    return Leaf(all(link.connected for link in links), links)


async def unowned(broker: Broker) -> set[int]:
    """The partitions for which no engine answers."""
    found = await broker.ask_all(names.ENGINE_PING, lambda answers: not _without(answers), ANSWERS_S_MAX)
    return _without(found)


async def triggers_run(broker: Broker) -> bool:
    found = await broker.ask_all(names.TRIGGERS_PING, lambda answers: bool(_read(answers, Running)), ANSWERS_S_MAX)
    return bool(_read(found, Running))


def _without(answers: list[bytes]) -> set[int]:
    return set(range(PARTITIONS)).difference(*(answer.partitions for answer in _read(answers, Owned)))


def _read(answers: list[bytes], kind: type[T]) -> list[T]:
    """The well-formed answers; others are ignored."""
    found = []
    for answer in answers:
        with suppress(msgspec.MsgspecError):
            found.append(msgspec.json.decode(answer, type=kind))
    return found


def ranges(numbers: Collection[int]) -> str:
    """Numbers as ranges: `0-3, 7`."""
    starts = sorted(number for number in numbers if number - 1 not in numbers)
    ends = sorted(number for number in numbers if number + 1 not in numbers)
    return ", ".join(str(start) if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True))
