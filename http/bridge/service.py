"""The bridge of one front-end process: its polls, the leases of assigned tasks, and the reports on polled tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from penstock.broker.store import Store
from penstock.broker.worker_protocol.bridge_messages import PolledTask, PollTasks
from penstock.config.limits import BRIDGE_AWAY_S
from penstock.config.process.background import restarting
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import PenstockError, Unavailable
from penstock.http.backend import Backend
from penstock.http.bridge.departures import Departures
from penstock.http.bridge.handout import TaskHandout
from penstock.http.bridge.leases import HeldLeases
from penstock.http.bridge.queue import Poller, QueueName
from penstock.http.bridge.queues import PolledQueues
from penstock.http.bridge.resolver import Resolver
from penstock.http.bridge.starts import Starts
from penstock.http.messages.presence import Presence

TIDY_S = 5.0


class Bridge:
    """Owned by the backend (`open_bridge`), for as long as its connection to the broker."""

    def __init__(self, store: Store, settings: BrokerSettings) -> None:
        self._held = HeldLeases(store, settings)
        self._waiting = 0
        self._handed_out = store.meters.counter("penstock_bridge_tasks_total")
        store.meters.reading("penstock_bridge_pollers", lambda: self._waiting)
        self._queues, self._starts = PolledQueues(store, self._held.answer_within), Starts(store.history, self._held)
        self.departures = Departures(store, self._held, BRIDGE_AWAY_S)
        self._handout = TaskHandout(store, self._held, self._starts)
        self.release, self.resolver = (
            store.leases.release,
            Resolver(store, self._held, self._starts, self._queues.answered_at_once),
        )

    async def poll(self, request: PollTasks, client: Presence) -> list[PolledTask]:
        """Tasks as soon as there are any, none when the time is over. The tasks of a client that has disconnected are
        given back."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.timeout_ms / 1000
        while True:
            poller = await self._waited(request, client, deadline - loop.time())
            try:
                tasks = await self._handout.hand_out(poller.taken, request.worker_id)
                await _client_is_noticed()
                if client.gone:
                    await self._handout.take_back(tasks)
                    return []
            finally:
                self._queues.let_go(poller.taken)
            if tasks or not poller.taken or loop.time() > deadline:
                for task in tasks:
                    self._handed_out.add(task.task)
                return tasks

    async def _waited(self, request: PollTasks, client: Presence, timeout_s: float) -> Poller:
        """A poller with the tasks that it took; empty when its client has disconnected. Raises Unavailable while the
        process stops."""
        if client.over.is_set() and not client.gone:
            raise Unavailable("the service is stopping")
        poller = Poller(request.max_tasks)

        def leave() -> None:
            self._queues.leave(poller)
            poller.finish()

        client.leave = leave
        self._waiting += 1
        try:
            await self._queues.poll(_queues(request), poller, request.worker_id, timeout_s)
            if not client.gone:
                return poller
        except BaseException:
            await self._queues.give_back(poller.taken)
            raise
        finally:
            self._waiting -= 1
        await self._queues.give_back(poller.taken)
        return Poller(0)


class OpenBridge:
    """The bridge of this process while the store is open. Owned by the application."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._bridge: Bridge | None = None
        backend.beside.append(self._opened)

    @property
    def bridge(self) -> Bridge:
        """The bridge. Raises Unavailable as `Backend.store` does."""
        assert self._backend.store
        assert self._bridge
        return self._bridge

    @asynccontextmanager
    async def _opened(self, store: Store) -> AsyncIterator[None]:
        async with open_bridge(store, self._backend.settings) as self._bridge:
            yield


@asynccontextmanager
async def open_bridge(store: Store, settings: BrokerSettings) -> AsyncIterator[Bridge]:
    """A bridge for the time of the block."""
    bridge = Bridge(store, settings)
    held, queues = bridge._held, bridge._queues

    await store.leases.on_release(queues.release)
    await store.leases.on_sought(bridge._starts.report)
    await bridge.departures.listen()
    reconnected = (held.restore, bridge.departures.renew_all)
    store.broker.on_reconnect.extend(reconnected)
    await _mend(store, held)
    try:
        async with (
            restarting(held.keep_alive, name="bridge_keep_alive"),
            restarting(bridge.departures.check_regularly, name="bridge_departures"),
            restarting(lambda: _tidy(queues), name="bridge_tidy"),
            store.leases.forwarded(held.holder, bridge.resolver.carry_out_forwarded),
        ):
            yield bridge
    finally:
        for callback in reconnected:
            store.broker.on_reconnect.remove(callback)
        bridge._starts.report_all()
        with suppress(Unavailable):
            await store.leases.written()
            await queues.close()
            await held.extend_all()


async def _mend(store: Store, held: HeldLeases) -> None:
    """Restore leases that the broker lost in a restart while no process was connected. If nothing was created yet,
    provisioning does it later."""
    with suppress(PenstockError):
        await store.history.last_seq()
        await held.restore()


async def _tidy(queues: PolledQueues) -> None:
    while True:
        await asyncio.sleep(TIDY_S)
        await queues.tidy()


async def _client_is_noticed() -> None:
    """Return when a client that had disconnected before the tasks came is known to be gone: both may be read in the
    same pass of the event loop, and uvicorn learns the end of a connection in the next."""
    await asyncio.sleep(0)


def _queues(request: PollTasks) -> list[QueueName]:
    """The queue of each type, and the worker's own ones when the poll has a worker id."""
    types = dict.fromkeys(request.task_types)
    own = [] if request.worker_id is None else [QueueName(task, worker=request.worker_id) for task in types]
    return [*own, *(QueueName(task, group=request.worker_group) for task in types)]
