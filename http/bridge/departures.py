"""Workers whose connect stream ended while they held tasks: their tasks are given to others after a while.

The process that had the stream notifies all front-end processes when it ends, and each checks the tasks that it has
assigned itself. A worker is back if it is registered: its registration exists as long as some process has a stream of
it. If that process died as well, the registration expires: so each process also checks regularly which of its workers
are no longer registered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from penstock.broker.store import Store
from penstock.broker.worker_messages import WorkerRegistration
from penstock.broker.worker_protocol.registrations import Departure, on_departure, publish_departure, registered
from penstock.config.logging import get_logger
from penstock.config.process.background import start
from penstock.engine.errors import PenstockError, Unavailable
from penstock.http.bridge.leases import HeldLeases

# A poll's answer that was on its way when the worker died is no sign of life. Both moments are of this process's clock.
SAME_MOMENT_S = 1.0
CHECK_AGAIN_S = 1.0  # after a check that the broker did not answer

log = get_logger()


class Departures:
    """Owned by the bridge."""

    def __init__(self, store: Store, held: HeldLeases, away_s: float) -> None:
        self._store, self._held, self._away_s = store, held, away_s
        self._streams: dict[str, set[asyncio.Event]] = {}
        self._seen: dict[str, Departure] = {}
        self._loop = asyncio.get_running_loop()

    async def listen(self) -> None:
        """Receive the departures that other processes publish, as long as the connection lives."""
        await on_departure(self._store.broker, self.left)

    @asynccontextmanager
    async def stream(self, entry: WorkerRegistration) -> AsyncIterator[asyncio.Event]:
        """Track a worker's connect stream for the time of the block. The event is set when its registration must be
        written again."""
        stale = asyncio.Event()
        streams = self._streams.setdefault(entry.worker_id, set())
        streams.add(stale)
        try:
            yield stale
        finally:
            streams.discard(stale)
            if not streams:
                self._streams.pop(entry.worker_id, None)
            with suppress(Unavailable):  # then the next check of the registrations finds it
                await publish_departure(self._store.broker, entry)

    def left(self, departure: Departure) -> None:
        """A stream of this worker has ended somewhere. Another one that is open here registers it again."""
        for stale in self._streams.get(departure.worker_id, ()):
            stale.set()
        self._seen.pop(departure.worker_id, None)
        self._decide_later(departure, time.time() + SAME_MOMENT_S, self._away_s)

    async def renew_all(self) -> None:
        """Write the registrations of all streams again after a reconnect: they may have expired meanwhile."""
        for streams in self._streams.values():
            for stale in streams:
                stale.set()

    async def check_regularly(self) -> None:
        """Find workers whose registration has expired, for ever."""
        while True:
            await asyncio.sleep(self._away_s)
            with suppress(PenstockError):
                await self.compare()

    async def compare(self) -> None:
        """Find workers that hold tasks and were registered at the last check, but are no longer. Raises Unavailable."""
        workers = self._held.workers()
        found = await registered(self._store.workers, workers) if workers else {}
        gone = [
            departure for worker_id, departure in self._seen.items() if worker_id in workers and worker_id not in found
        ]
        self._seen = found
        for departure in gone:
            self.left(departure)

    def _decide_later(self, departure: Departure, silent_since: float, delay_s: float) -> None:
        self._loop.call_later(delay_s, self._begin, departure, silent_since)

    def _begin(self, departure: Departure, silent_since: float) -> None:
        if departure.worker_id in self._held.workers():
            start(self._decide(departure, silent_since), name="bridge_departure", expected=PenstockError)

    async def _decide(self, departure: Departure, silent_since: float) -> None:
        try:
            found = await registered(self._store.workers, [departure.worker_id])
            if not any(departure.is_of(one) for one in found.values()):
                await self._held.give_up(departure.worker_id, silent_since)
        except PenstockError as error:
            log.warning("departure_check_failed", worker_id=departure.worker_id, error=str(error))
            self._decide_later(departure, silent_since, CHECK_AGAIN_S)
