"""All that is stored, behind one connection: what each process of the service opens once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.broker import names
from penstock.broker.buckets import Bucket
from penstock.broker.connection import Broker, connect
from penstock.broker.dead_letters import DeadLetters
from penstock.broker.definitions import Definitions
from penstock.broker.direct import DirectReader, open_reader
from penstock.broker.history import History
from penstock.broker.publisher import Publisher, open_publisher
from penstock.broker.tasks import Tasks
from penstock.config.settings import BrokerSettings


class Store:
    """One of each, all over the same connection."""

    def __init__(self, broker: Broker, publisher: Publisher, reader: DirectReader) -> None:
        self.broker, self.publisher, self.reader = broker, publisher, reader
        self.history = History(broker, publisher, reader)
        self.tasks = Tasks(broker, publisher)
        self.dead_letters = DeadLetters(publisher)
        self.runs = self.bucket(names.RUNS)
        self.workers = self.bucket(names.WORKERS)
        self.signals = self.bucket(names.SIGNALS)
        self.checkpoints = self.bucket(names.CHECKPOINTS)
        self.definitions = Definitions(self.bucket(names.DEFINITIONS))

    async def remove_run(self, run_id: str) -> None:
        """Delete all that is kept of a run. Its history goes last: until then, what an interruption left can be found again."""
        await self.signals.purge(f"{run_id}.>")
        await self.checkpoints.purge(f"{run_id}.>")
        await self.runs.purge(run_id)
        await self.history.remove(run_id)

    def bucket(self, name: str) -> Bucket:
        return Bucket(name, self.broker, self.publisher, self.reader)


@asynccontextmanager
async def open_store(settings: BrokerSettings, name: str, patience_s: float = 10.0) -> AsyncIterator[Store]:
    """A store for the time of the block; `name` is what the broker's monitoring shows. Raises Unavailable."""
    async with connect(settings, name, patience_s) as broker, open_publisher(broker) as publisher, open_reader(broker) as reader:
        yield Store(broker, publisher, reader)
