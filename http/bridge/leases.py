"""The leases of tasks that this process has assigned, and how it keeps those tasks with their workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from uuid import uuid4

import msgspec

from penstock.broker.nats.publisher import ack_seq
from penstock.broker.records.leases import Lease, Leases, StoredLease
from penstock.broker.store import Store
from penstock.broker.streams.provisioning import restore_leases
from penstock.config.limits import ACK_WAIT_S, BRIDGE_LEASE_S
from penstock.config.logging import get_logger
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, PenstockError

ACK_WAIT_S_MIN = 0.1
STORED_S_MAX = 5.0

log = get_logger()


class HeldLeases:
    """Owned by the bridge. A task that another process resolves stays here until the next round finds its lease
    gone."""

    def __init__(self, store: Store, settings: BrokerSettings) -> None:
        self._store, self._settings = store, settings
        self.holder = uuid4().hex
        self._leases: Leases = store.leases
        self._held: dict[str, StoredLease] = {}
        self._coming: dict[str, asyncio.Future[bytes]] = {}  # assigned, and not known to be stored
        self._newest = 0
        self._ack_wait_s = ACK_WAIT_S
        self._sooner = asyncio.Event()

    async def begin(self, leases: Iterable[Lease]) -> None:
        """Store the leases of tasks that are being assigned, and keep the tasks alive from now on. Raises Unavailable:
        then for none.

        Returns when they are on their way: the client's next request reaches the broker later, and a crash here does
        not stop them.
        """
        sent = [self._begin(lease) for lease in leases]
        try:
            await self._leases.written()
        except BaseException:
            for one in sent:
                one.cancel()
            raise

    def _begin(self, lease: Lease) -> asyncio.Future[bytes]:
        sent = self._coming[lease.task_id] = self._leases.send(lease)
        sent.add_done_callback(partial(self._stored, lease))
        return sent

    def _stored(self, lease: Lease, sent: asyncio.Future[bytes]) -> None:
        if self._coming.get(lease.task_id) is not sent:
            return  # assigned again meanwhile
        del self._coming[lease.task_id]
        if not sent.cancelled():
            if error := sent.exception():
                log.error("lease_not_stored", task_id=lease.task_id, error=str(error))
            else:
                self.keep(StoredLease(lease, ack_seq(sent.result())))

    def keep(self, kept: StoredLease) -> None:
        self._held[kept.lease.task_id] = kept
        self._newest = max(self._newest, kept.revision)

    async def get(self, task_id: str) -> StoredLease | None:
        """The lease as this process knows it; another process may have changed it."""
        if coming := self._coming.get(task_id):
            await asyncio.wait((coming,), timeout=STORED_S_MAX)
        return self._held.get(task_id)

    def changed(self, before: StoredLease, after: StoredLease) -> None:
        """Record a lease that this process has changed."""
        self._newest = max(self._newest, after.revision)
        if self._is_held(before.lease):
            self._held[after.lease.task_id] = after

    def let_go(self, kept: StoredLease) -> bool:
        """Stop keeping the task alive. Returns whether it was held."""
        held = self._is_held(kept.lease)
        if held:
            del self._held[kept.lease.task_id]
        return held

    def answer_within(self, ack_wait_s: float) -> None:
        """Record an ack wait: some of the tasks are delivered again after this many seconds without an extension."""
        if ack_wait_s < self._ack_wait_s:
            self._ack_wait_s = max(ack_wait_s, ACK_WAIT_S_MIN)
            self._sooner.set()

    async def keep_alive(self) -> None:
        """Extend the ack wait of every task held, before it ends, for ever."""
        while True:
            self._sooner.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._ack_wait_s / 3):
                    await self._sooner.wait()
            if self._held:
                try:
                    await self._check(list(self._held.values()), time.time() - BRIDGE_LEASE_S)
                except PenstockError as error:
                    log.warning("leases_not_extended", held=len(self._held), error=str(error))

    def workers(self) -> list[str]:
        """The workers with tasks that were assigned here, of those that gave an id."""
        return list({kept.lease.worker_id for kept in self._held.values() if kept.lease.worker_id})

    async def give_up(self, worker_id: str, silent_since: float) -> None:
        """Let other workers have the tasks of a worker that has left, except those for which it sent a request after
        this time (s since the epoch). Raises Unavailable."""
        await self._check([kept for kept in self._held.values() if kept.lease.worker_id == worker_id], silent_since)

    async def extend_all(self) -> None:
        """Restart the ack wait of every task held, before this process ends."""
        for kept in list(self._held.values()):
            await self._leases.delivery(kept.lease).in_progress()

    async def restore(self) -> None:
        """Store the leases again that the broker has lost in a restart. Called after each reconnect."""
        try:
            await restore_leases(self._store.broker, self._settings)
            if self._held and await self._leases.last_revision() < self._newest:
                self._newest = 0
                for kept in list(self._held.values()):
                    await self._restore(kept)
        except PenstockError as error:
            log.warning("leases_not_restored", held=len(self._held), error=str(error))

    async def _restore(self, kept: StoredLease) -> None:
        try:
            self.changed(kept, await self._leases.replace(StoredLease(kept.lease, 0), kept.lease))
        except Conflict:
            self.let_go(kept)  # assigned again meanwhile

    async def _check(self, before: Sequence[StoredLease], silent_since: float) -> None:
        """Apply what other processes did to the leases: the deadline of a resolved or paused task must not be extended
        any more."""
        found = await self._leases.many([kept.lease.task_id for kept in before])
        for kept in before:
            if self._held.get(kept.lease.task_id) is kept:
                await self._renew(
                    kept, found.get(kept.lease.task_id) or await self._leases.get(kept.lease.task_id), silent_since
                )

    async def _renew(self, kept: StoredLease, found: StoredLease | None, silent_since: float) -> None:
        if found is None or (found.lease.reply, found.lease.holder) != (kept.lease.reply, self.holder):
            self.let_go(kept)
        elif found.lease.seen_at < silent_since and not found.lease.claimed_at:
            log.info("worker_silent", task_id=found.lease.task_id, worker_id=found.lease.worker_id)
            self.let_go(kept)
            await self._leases.delivery(found.lease).give_back()
        else:
            self.changed(kept, found)
            if not found.lease.claimed_at:
                await self._leases.delivery(found.lease).in_progress()

    def _is_held(self, lease: Lease) -> bool:
        held = self._held.get(lease.task_id)
        return held is not None and held.lease.reply == lease.reply


def seen(lease: Lease) -> Lease:
    """The lease with the current time as that of the worker's last request."""
    return msgspec.structs.replace(lease, seen_at=time.time())


def claimed(lease: Lease) -> Lease:
    """The lease while a report of its worker is carried out; a report also counts as a request of the worker."""
    now = time.time()
    return msgspec.structs.replace(lease, seen_at=now, claimed_at=now)


def unclaimed(lease: Lease) -> Lease:
    return msgspec.structs.replace(lease, claimed_at=0.0)
