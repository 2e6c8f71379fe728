"""Membership: this shard renews its lease with heartbeats, and detects which other shards are dead.

No clock of another machine is trusted. A shard may act for LEASE_S from when it sent its last heartbeat that the broker
has stored. Other shards consider it dead after SILENCE_S without a new heartbeat, which is longer and begins later.
They count only time in which their own heartbeats were stored: while the broker is away, no shard is considered dead.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from penstock.actors.runs.shared.lease import ShardLease, now
from penstock.broker.records.owners import Member, Owners, View
from penstock.config.limits import LEASE_RENEW_S, SILENCE_S
from penstock.config.logging import get_logger
from penstock.config.process.crash_points import reached
from penstock.config.process.rate_limited_log import log_rate_limited
from penstock.engine.errors import Conflict, Full, Unavailable

log = get_logger()


def new_member(place: str, shard: int = 0, engine: str = "") -> Member:
    """A member with a new id: a new life of the shard that has this place."""
    return Member(uuid4().hex, place, shard, engine, socket.gethostname(), os.getpid())


class _Heartbeat(Struct):
    """The last heartbeat of another shard. `since`: when it was first seen; `silent_s`: how long none has followed."""

    revision: int
    since: float
    silent_s: float = 0.0


class Membership:
    """Owned by one life of a shard."""

    def __init__(self, owners: Owners, me: Member, lease: ShardLease, dead: Callable[[], Collection[str]]) -> None:
        """`dead` returns the places that no process holds now: the former shards of these places have ended."""
        self.me, self.lease = me, lease
        self._owners, self._dead = owners, dead
        self._revision = 0
        self._renewals = 0
        self._counted, self._counted_at = 0, now()
        self._heartbeats: dict[str, _Heartbeat] = {}
        self._writing = asyncio.Lock()

    async def join(self) -> None:
        """List this shard, and remove the former shard of its place. Raises Unavailable."""
        view = await self._owners.read()
        for member_id in self._ended(view, {self.me.place}):
            await self._remove(view, member_id)
        await self._renew()
        reached("member.joined")
        await self._owners.announce_change()

    async def keep(self) -> None:
        """Renew the lease while it is good. Return when it is over."""
        while self.lease.good:
            await asyncio.sleep(LEASE_RENEW_S)
            if self.lease.good:
                await self._try_to_renew()
        self.lease.end()

    async def withdraw(self) -> None:
        """List this shard as one that takes no partitions. Raises Unavailable."""
        if not self.me.draining:
            self.me = replace(self.me, draining=True)
            await self._renew()

    async def leave(self) -> None:
        """Remove this shard from the list and end its lease. Raises Unavailable."""
        async with self._writing:
            await self._owners.remove(self.me.id, self._revision)
        self.lease.end()

    async def remove_dead(self, view: View) -> None:
        """Remove the shards that are dead from the list, and from the view. Raises Unavailable."""
        self._count(view)
        silent = {member_id for member_id, last in self._heartbeats.items() if last.silent_s >= SILENCE_S}
        for member_id in silent | self._ended(view, ()):
            listed = view.members[member_id].member
            log.warning(
                "shard_gone", shard=listed.shard, host=listed.host, member=member_id, silent=member_id in silent
            )
            await self._remove(view, member_id)

    def _ended(self, view: View, places: Collection[str]) -> set[str]:
        """The members whose place is known to be empty. `dead` is called after they were listed: a process that left
        its place since then does not come back."""
        empty = {*places, *self._dead()}
        return {
            member_id
            for member_id, listed in view.members.items()
            if listed.member.place in empty and member_id != self.me.id
        }

    def _count(self, view: View) -> None:
        """Add the time since the last count to the silence of each member without a new heartbeat, if this shard's own
        heartbeats were stored meanwhile."""
        at, heartbeats = now(), self._heartbeats
        counts = self._renewals > self._counted
        for member_id in heartbeats.keys() - view.members.keys():
            del heartbeats[member_id]
        for member_id, listed in view.members.items():
            known = heartbeats.get(member_id)
            if member_id == self.me.id:
                continue
            if known is None or known.revision != listed.revision:
                heartbeats[member_id] = _Heartbeat(listed.revision, at)
            elif counts:
                known.silent_s += min(at - max(self._counted_at, known.since), 2 * LEASE_RENEW_S)
        if counts:
            self._counted, self._counted_at = self._renewals, at

    async def _remove(self, view: View, member_id: str) -> None:
        """Remove a member from the view and the list. A Conflict is ignored: it is alive, or was removed already."""
        listed = view.members.pop(member_id)
        self._heartbeats.pop(member_id, None)
        with suppress(Conflict):
            await self._owners.remove(member_id, listed.revision)

    async def _try_to_renew(self) -> None:
        try:
            await self._renew()
        except Conflict:
            await self._resolve_conflict()
        except Unavailable as error:
            log_rate_limited(log, "lease_not_renewed", shard=self.me.shard, error=str(error))

    async def _resolve_conflict(self) -> None:
        """Find out who wrote: this shard, when an answer was lost, or another one that considered this shard dead."""
        try:
            listed = await self._owners.find(self.me.id)
            if listed is None:
                self.lease.end()
                return
            self._revision = listed.revision
            await self._renew()
        except (Conflict, Unavailable) as error:
            log_rate_limited(log, "lease_not_renewed", shard=self.me.shard, error=str(error))

    async def _renew(self) -> None:
        async with self._writing:
            asked_at = now()
            try:
                self._revision = await self._owners.renew(self.me, self._revision)
                self._renewals += 1
            except Full:  # no shard can write, so none can take anything over
                if not self._revision:
                    raise
            self.lease.renewed(asked_at)
