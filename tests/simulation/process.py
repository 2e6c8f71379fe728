"""A process of the service in the simulation: a connection, a store over it, and perhaps a shard. It runs the real
code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.shard import Shard
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.direct import open_reader
from penstock.broker.nats.publisher import open_publisher
from penstock.broker.records.owners import Member
from penstock.broker.store import Store
from penstock.engine.run.workflow import Workflow
from penstock.telemetry.meters import Meters
from tests.simulation.archiving import places
from tests.simulation.client import Client
from tests.simulation.loop import Life
from tests.simulation.server import Server


class Process:
    """`kind` is engine or front. `store` is there once it has started, and `shard` when it is at work.

    At most one process of a place is alive at a time, and whoever has the place knows that: as with the locks of
    actors/ownership/places.py.
    """

    def __init__(self, server: Server, name: str, kind: str, place: str, compiled: Mapping[str, Workflow]) -> None:
        self.server, self.kind, self.place = server, kind, place
        self.life = Life(name)
        self.client = Client(server, self.life, kind)
        self.store: Store | None = None
        self.shard: Shard | None = None
        self._compiled = compiled
        self._leave = asyncio.Event()
        self.task = server.loop.spawn(self.life, self._run())

    @property
    def alive(self) -> bool:
        return not self.life.ended and not self.task.done()

    async def _run(self) -> None:
        await self.client.connect()
        async with _opened(self.client) as store:
            self.store = store
            if self.server.archives:
                store.archive.after_s, store.archive._used = 1.0, True
                store.archive.places = partial(places, self.server)
            store.definitions._compiled.update(
                self._compiled
            )  # what other worlds of this seed's kind have compiled before
            if self.kind == "engine":
                async with open_shard(store, Member(self.life.name, self.place, engine=self.life.name)) as self.shard:
                    await self._until_over(self.shard)
            else:
                await self._leave.wait()

    async def _until_over(self, shard: Shard) -> None:
        """Until it is to leave, or has lost its lease: then its process ends, as the service's do."""
        waits = [asyncio.ensure_future(self._leave.wait()), asyncio.ensure_future(shard.lease.over.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()

    def leave(self) -> None:
        """Stop in peace: everything is written and acknowledged."""
        self._leave.set()

    def kill(self) -> None:
        """As by SIGKILL: nothing of it does anything any more."""
        if self.life.ended:
            return
        self.life.ended = True
        self.client.is_connected = False
        self.server.drop(self.client)
        self.server.loop.go_on(self.life)
        self.life.cancel_all()

    def pause(self) -> None:
        self.server.loop.pause(self.life)

    def go_on(self) -> None:
        self.server.loop.go_on(self.life)

    def spawn(self, coro: Any) -> asyncio.Task[Any]:
        return self.server.loop.spawn(self.life, coro)


@asynccontextmanager
async def _opened(client: Client) -> AsyncIterator[Store]:
    broker, meters = Broker(client), Meters()  # type: ignore[arg-type]
    broker._opened = True
    client.on_disconnected, client.on_reconnected = broker._disconnected, broker._reconnected
    async with open_publisher(broker, meters) as publisher, open_reader(broker) as reader:
        yield Store(broker, publisher, reader, meters)
