"""The leases of tasks that this process has assigned, and how it keeps those tasks with their workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from uuid import uuid4

import msgspec

from penstock.broker.nats.publisher import ack_seq
from penstock.broker.records.leases import BucketAge, Lease, Leases, StoredLease
from penstock.broker.store import Store
from penstock.broker.streams.provisioning import restore_leases
from penstock.config.limits import ACK_WAIT_S, BRIDGE_LEASE_S
from penstock.config.logging import get_logger
from penstock.config.settings import BrokerSettings
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Conflict, NotFound, PenstockError, Unavailable

ACK_WAIT_S_MIN = 0.1
STORED_S_MAX = 5.0
RESTORE_AGAIN_S = 0.5
CHECK_AGAIN_S = 0.1
READ_AGAIN_S = 0.02  # a change notification may come before the change can be read

log = get_logger()


class HeldLeases:
    """Owned by the bridge. A task that another process resolves stays here until the next round finds its lease
    gone.

    A broker that restarts forgets all leases. From the loss of the connection until they are stored again, the leases
    are in doubt: that one is missing says nothing then.
    """

    def __init__(self, store: Store, settings: BrokerSettings) -> None:
        self._store, self._settings = store, settings
        self.holder = uuid4().hex
        self._leases: Leases = store.leases
        self._held: dict[str, StoredLease] = {}
        self._coming: dict[str, asyncio.Future[bytes]] = {}  # sent, and not known to be stored
        self._newest = 0
        self._made_at: str | None = None  # of the bucket; None: not known
        self._checked = store.broker.losses  # losses of the connection after which no lease is missing
        self._forgotten = 0  # how often the broker has lost all leases
        self._missing = False
        self._restoring = asyncio.Lock()
        self._ack_wait_s = ACK_WAIT_S
        self._sooner = asyncio.Event()

    def begin(self, lease: Lease) -> None:
        """Store the lease of an assigned task, without waiting, and keep the task alive from now on."""
        sent = self._coming[lease.task_id] = self._leases.send(lease)
        sent.add_done_callback(partial(self._stored, lease))

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

    @property
    def in_doubt(self) -> bool:
        return self._missing or self._checked != self._store.broker.losses

    async def get(self, task_id: str) -> StoredLease | None:
        """The lease as this process knows it; another process may have changed it. Raises Unavailable while the leases
        are in doubt."""
        kept = await self.known(task_id)
        if self.in_doubt:
            raise Unavailable("the leases of tasks are being restored")
        return kept

    async def known(self, task_id: str) -> StoredLease | None:
        """As `get`, also while the leases are in doubt."""
        if coming := self._coming.get(task_id):
            await asyncio.wait((coming,), timeout=STORED_S_MAX)
        return self._held.get(task_id)

    async def found(self, task_id: str) -> StoredLease:
        """The stored lease, also of a task that another process has just assigned. Raises NotFound."""
        if kept := await self._leases.get(task_id) or await self._sought(task_id):
            return kept
        if await self._leases.being_restored():
            raise Unavailable("the leases of tasks are being restored")
        raise not_polled(task_id)

    async def claim_ended(self, kept: StoredLease, wait_s: float) -> None:
        """Wait until the lease is changed, at most `wait_s` and at most CHECK_AGAIN_S: a change notification may come
        before the change can be read."""
        async with self._leases.change_notification(kept.lease.task_id) as changed:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(wait_s, CHECK_AGAIN_S)):
                    if await self._leases.get(kept.lease.task_id) == kept:
                        await changed.wait()

    def changed(self, before: StoredLease, after: StoredLease) -> None:
        """Record a lease that this process has changed."""
        self._newest = max(self._newest, after.revision)
        if self._is_held(before.lease):
            self._held[after.lease.task_id] = after

    def let_go(self, kept: StoredLease) -> int | None:
        """Stop keeping the task alive. Returns what `hold_again` takes; None: it was not held."""
        if not self._is_held(kept.lease):
            return None
        del self._held[kept.lease.task_id]
        return self._forgotten

    def hold_again(self, kept: StoredLease, let_go: int) -> None:
        """Take back a `let_go`. If the broker has forgotten the lease meanwhile, it is restored soon."""
        self._held[kept.lease.task_id] = kept
        if self._forgotten != let_go:
            self._missing = True
            self._sooner.set()

    def may_be_forgotten(self, let_go: int) -> bool:
        """Whether the broker may have lost the lease since this `let_go`."""
        return self.in_doubt or self._forgotten != let_go

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
                async with asyncio.timeout(RESTORE_AGAIN_S if self.in_doubt else self._ack_wait_s / 3):
                    await self._sooner.wait()
            if self.in_doubt and self._store.broker.connected:
                await self.restore()
            if self._held and not self.in_doubt:
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
        """Store the leases again that the broker has lost in a restart. Called after each reconnect, and again until
        all are stored."""
        async with self._restoring:
            losses = self._store.broker.losses
            try:
                await restore_leases(self._store.broker, self._settings)
                self._compare(await self._leases.age())
                if self._missing:
                    for kept in list(self._held.values()):
                        await self._restore(kept)
                    self._missing = False
                self._checked = losses
            except PenstockError as error:
                log.warning("leases_not_restored", held=len(self._held), error=str(error))
                self._sooner.set()

    def _compare(self, age: BucketAge) -> None:
        """Notice that the broker has lost all leases. Others may have restored theirs already, more than it had."""
        if age.made_at != (self._made_at or age.made_at) or age.last_revision < self._newest:
            self._missing, self._newest = True, 0
            self._forgotten += 1
        self._made_at = age.made_at

    async def _restore(self, kept: StoredLease) -> None:
        if not self._is_held(kept.lease):
            return
        try:
            self.changed(kept, await self._leases.replace(StoredLease(kept.lease, 0), kept.lease))
        except Conflict:  # restored before, or assigned again meanwhile
            found = await self._leases.get(kept.lease.task_id)
            if found is None or not self._is_ours(kept, found):
                self.let_go(kept)
            else:
                self.changed(kept, found)

    async def _check(self, before: Sequence[StoredLease], silent_since: float) -> None:
        """Apply what other processes did to the leases: the deadline of a resolved or paused task must not be extended
        any more."""
        losses = self._store.broker.losses
        found = await self._leases.many([kept.lease.task_id for kept in before])
        for kept in before:
            if self._held.get(kept.lease.task_id) is kept:
                lease = found.get(kept.lease.task_id) or await self._leases.get(kept.lease.task_id)
                if self.in_doubt or losses != self._store.broker.losses:
                    return
                await self._renew(kept, lease, silent_since)

    async def _renew(self, kept: StoredLease, found: StoredLease | None, silent_since: float) -> None:
        if found is None or not self._is_ours(kept, found):
            self.let_go(kept)
        elif found.lease.seen_at < silent_since and not found.lease.claimed_at:
            log.info("worker_silent", task_id=found.lease.task_id, worker_id=found.lease.worker_id)
            self.let_go(kept)
            await self._leases.delivery(found.lease).give_back()
        else:
            self.changed(kept, found)
            if not found.lease.claimed_at:
                await self._leases.delivery(found.lease).in_progress()

    async def _sought(self, task_id: str) -> StoredLease | None:
        """The lease of a task that another process has just assigned: it stores the lease when it is asked."""
        async with self._leases.change_notification(task_id) as changed:
            await self._leases.seek(task_id)
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_AGAIN_S):
                    await changed.wait()
        kept = await self._leases.get(task_id)
        if kept is None and changed.is_set():
            await asyncio.sleep(READ_AGAIN_S)
            kept = await self._leases.get(task_id)
        return kept

    def _is_ours(self, kept: StoredLease, found: StoredLease) -> bool:
        return (found.lease.reply, found.lease.holder) == (kept.lease.reply, self.holder)

    def _is_held(self, lease: Lease) -> bool:
        held = self._held.get(lease.task_id)
        return held is not None and held.lease.reply == lease.reply


def not_polled(task_id: str) -> NotFound:
    return NotFound(f"task {quoted(task_id)} is not among the polled tasks")


def seen(lease: Lease) -> Lease:
    """The lease with the current time as that of the worker's last request."""
    return msgspec.structs.replace(lease, seen_at=time.time())


def claimed(lease: Lease) -> Lease:
    """The lease while a report of its worker is carried out; a report also counts as a request of the worker."""
    now = time.time()
    return msgspec.structs.replace(lease, seen_at=now, claimed_at=now)


def unclaimed(lease: Lease) -> Lease:
    return msgspec.structs.replace(lease, claimed_at=0.0)
