"""Workers whose connect stream broke while they held tasks: after a while without them, their tasks are for others.

Whichever process had the stream tells all when it ends, and each looks to the tasks that it has handed out itself. The
registration says whether the worker is back: it is there as long as some process has a stream of the worker. A stream
whose process died with the worker ends with the registration's time to live: so each process also looks now and then
who of its workers is registered no more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from penstock.broker.store import Store
from penstock.broker.worker_messages import WorkerRegistration
from penstock.broker.worker_protocol.registrations import Departure, on_left, registered, tell_left
from penstock.config.logging import get_logger
from penstock.config.process.background import start
from penstock.engine.errors import PenstockError, Unavailable
from penstock.http.bridge.leases import HeldLeases

# A poll's answer that was on its way when the worker died is no sign of life. Both moments are of this process's clock.
SAME_MOMENT_S = 1.0
LOOK_AGAIN_S = 1.0  # after a look that the broker did not answer

log = get_logger()


class Departures:
    """Owned by the bridge."""

    def __init__(self, store: Store, held: HeldLeases, away_s: float) -> None:
        self._store, self._held, self._away_s = store, held, away_s
        self._streams: dict[str, set[asyncio.Event]] = {}
        self._seen: dict[str, Departure] = {}
        self._loop = asyncio.get_running_loop()

    async def listen(self) -> None:
        """Be told of what happens in other processes, as long as the connection lives."""
        await on_left(self._store.broker, self.left)

    @asynccontextmanager
    async def stream(self, entry: WorkerRegistration) -> AsyncIterator[asyncio.Event]:
        """For the time of a worker's connect stream. The event is set when its registration must be written again."""
        stale = asyncio.Event()
        streams = self._streams.setdefault(entry.worker_id, set())
        streams.add(stale)
        try:
            yield stale
        finally:
            streams.discard(stale)
            if not streams:
                self._streams.pop(entry.worker_id, None)
            with suppress(Unavailable):  # then the next look at the registrations finds it
                await tell_left(self._store.broker, entry)

    def left(self, departure: Departure) -> None:
        """A stream of this worker has ended somewhere. Another one that is open here registers it again."""
        for stale in self._streams.get(departure.worker_id, ()):
            stale.set()
        self._seen.pop(departure.worker_id, None)
        self._decide_later(departure, time.time() + SAME_MOMENT_S, self._away_s)

    async def renew_all(self) -> None:
        """Write the registrations of all streams again: those of a broker that was away may have ended. After a
        reconnect."""
        for streams in self._streams.values():
            for stale in streams:
                stale.set()

    async def look(self) -> None:
        """Notice those whose registration ended without a word, for ever."""
        while True:
            await asyncio.sleep(self._away_s)
            with suppress(PenstockError):
                await self.compare()

    async def compare(self) -> None:
        """Notice those who hold tasks and have been registered at an earlier look, but are no more. Raises
        Unavailable."""
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
            log.warning("departure_waits", worker_id=departure.worker_id, error=str(error))
            self._decide_later(departure, silent_since, LOOK_AGAIN_S)
