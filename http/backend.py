"""What responders use: the store, the definition cache and the run index; and the connection that opens them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from typing import Any, NoReturn

from penstock.actors.index.file import index_path
from penstock.actors.index.follower import follow_when_free
from penstock.actors.index.run_index import RunIndex
from penstock.actors.runs.loading import load_many
from penstock.actors.telemetry.exporting import exporting
from penstock.actors.telemetry.telemetry import Numbers, reporting
from penstock.broker.store import Store, open_store
from penstock.config.log_setup import process_name
from penstock.config.logging import get_logger
from penstock.config.process.background import again_and_again, end, restarting, start
from penstock.config.process.stopping import ON_STOP
from penstock.config.settings import BrokerSettings, TelemetrySettings
from penstock.engine.errors import Denied, PenstockError, Unavailable
from penstock.http.catalog import Catalog
from penstock.http.messages.large_bodies import LargeBodies
from penstock.http.messages.presence import Waiters
from penstock.http.served import ServedTasks
from penstock.telemetry.meters import Meters

STARTUP_S_MAX = 2.0
CONNECT_S = 10.0
RETRY_S = 0.2
REFUSED_RETRY_S = 2.0
FOLLOW_AFTER_S = 2.0
NO_EXPORT = TelemetrySettings()

log = get_logger()


class Backend:
    """Owned by the application, from its startup to its shutdown; it connects when the broker is up."""

    def __init__(
        self,
        settings: BrokerSettings,
        secrets: frozenset[str] = frozenset(),
        telemetry: TelemetrySettings = NO_EXPORT,
    ) -> None:
        """`secrets` are values that telemetry must never contain."""
        self.settings = settings
        self.meters = Meters()
        self.numbers = Numbers(process_name(), self.meters)
        self._secrets, self._telemetry = secrets, telemetry
        self.index = RunIndex(index_path(settings.data_dir))
        self.waiters = Waiters()
        self.large = LargeBodies()
        self._store: Store | None = None
        self._catalog: Catalog | None = None
        self._served: ServedTasks | None = None
        self.beside: list[Callable[[Store], AbstractAsyncContextManager[object]]] = []  # open as long as the store is
        self._task: asyncio.Task[None] | None = None
        self._problem = ""

    @property
    def store(self) -> Store:
        """The open store. Raises Unavailable at once while the broker is not connected."""
        if self._store is None:
            raise Unavailable(
                f"the broker is not connected: {self._problem}" if self._problem else "the broker is not connected"
            )
        if not self._store.broker.connected:
            raise Unavailable("the broker is not connected")
        return self._store

    @property
    def catalog(self) -> Catalog:
        """Raises Unavailable as `store` does."""
        assert self.store
        assert self._catalog
        return self._catalog

    @property
    def served(self) -> ServedTasks:
        """Raises Unavailable as `store` does."""
        assert self.store
        assert self._served
        return self._served

    async def process_startup(self, scope: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        """Return when the store is open, or after a time limit: requests are answered 503 until it is."""
        scope.get("state", {})[ON_STOP] = self.waiters.stop
        connected = asyncio.Event()
        self._task = start(again_and_again(lambda: self._stay_connected(connected), name="backend"), name="backend")
        with suppress(TimeoutError):
            async with asyncio.timeout(STARTUP_S_MAX):
                await connected.wait()

    async def process_shutdown(self, scope: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        assert self._task
        self.waiters.stop()
        await end(self._task)
        self.index.close()

    async def _stay_connected(self, connected: asyncio.Event) -> None:
        """Connect for the first time: later the connection reconnects by itself."""
        while True:
            try:
                async with (
                    open_store(self.settings, "http", CONNECT_S, self.meters) as store,
                    reporting(store, self.numbers, self._secrets),
                    exporting(store, self.numbers, self._telemetry, self._secrets),
                    store.progress.listening(),
                    AsyncExitStack() as stack,
                    restarting(partial(self._follow_in_need, store), name="run_index", again_s=FOLLOW_AFTER_S),
                ):
                    for opened in self.beside:
                        await stack.enter_async_context(opened(store))
                    await self._use(store)
                    connected.set()
                    await asyncio.Event().wait()  # until cancelled
            except PenstockError as error:
                if str(error) != self._problem:
                    log.warning("broker_unreachable", error=str(error))
                self._problem = str(error)
                await asyncio.sleep(REFUSED_RETRY_S if isinstance(error, Denied) else RETRY_S)

    async def _follow_in_need(self, store: Store) -> NoReturn:
        """Keep the run index up to date in this process while no other process does: for example under plain
        gunicorn."""
        while True:
            await asyncio.sleep(FOLLOW_AFTER_S)
            if not self.index.alive():
                fold = partial(load_many, by_index=False)
                await follow_when_free(store, index_path(self.settings.data_dir), fold)

    async def _use(self, store: Store) -> None:
        store.archive.places = self.index.archived
        catalog = Catalog(store.definitions)
        await catalog.watch()
        store.broker.on_reconnect.append(catalog.forget_all)
        self._store, self._catalog, self._served = store, catalog, ServedTasks(store)
