"""The owners of partitions, across all engines: the shards that are alive, and their claims.

Every change is a compare-and-swap. A claim is valid as long as its owner is listed as a member;
actors/ownership/membership.py decides by its own clock when a member has expired.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import orjson
from msgspec import Struct
from nats.aio.msg import Msg

from penstock.broker import names, record_keys
from penstock.broker.nats.buckets import Bucket, Entry
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.errors import translated
from penstock.broker.nats.headers import EXPECT_SEQ, KV_OPERATION, TTL
from penstock.config.limits import DRAINED_TTL_S, MEMBER_TTL_S
from penstock.config.process.background import all_of
from penstock.engine.errors import NotFound, Unavailable

WRITE_S_MAX = 1.5
WHOLE_S = 5.0


class Member(Struct, frozen=True):
    """One life of a shard. `place` is the same for all lives of which at most one can exist at a time; `engine` for all
    shards of one supervisor. A `draining` member takes no partitions."""

    id: str
    place: str
    shard: int = 0
    engine: str = ""
    host: str = ""
    pid: int = 0
    draining: bool = False


class Claim(Struct, frozen=True, omit_defaults=True):
    """A claim without an owner was handed over, and `consumer` waits for the next owner. Everything before the sequence
    `start` of the history created at `log` is handled."""

    owner: str = ""
    consumer: str = ""
    start: int = 1
    log: str = ""


class Listed(NamedTuple):
    member: Member
    revision: int


class Claimed(NamedTuple):
    """`revision` 0: the partition was never claimed."""

    claim: Claim
    revision: int


class Handled(Struct, frozen=True):
    """Everything of a partition before the sequence `start` of the history created at `log` is handled."""

    start: int
    log: str


class View(NamedTuple):
    """Members by id, claims by partition, and the draining engines, all read at about the same time. `renewed_at` is
    the broker's time of each member's last heartbeat, in s since the epoch. `handled` is what owners have noted since
    the claims were written, by partition."""

    members: dict[str, Listed]
    claims: dict[int, Claimed]
    drained: frozenset[str]
    renewed_at: Mapping[str, float] = {}
    handled: Mapping[int, Handled] = {}

    def handled_before(self, number: int, log: str) -> int:
        """The sequence before which everything of the partition is handled, as the note says, or without one the
        claim. A note may say less than the claim: then the log had lost its end."""
        claimed, noted = self.claims.get(number), self.handled.get(number)
        if noted is not None and noted.log == log:
            return noted.start
        return 1 if claimed is None or claimed.claim.log != log else claimed.claim.start


_ENCODER = msgspec.json.Encoder()
_MEMBER = msgspec.json.Decoder(Member)
_CLAIM = msgspec.json.Decoder(Claim)
_HANDLED = msgspec.json.Decoder(Handled)


class Owners:
    """The bucket of members and claims."""

    def __init__(self, bucket: Bucket, broker: Broker) -> None:
        self._bucket, self._broker = bucket, broker
        self._entries: dict[str, Entry | None] = {}
        self._revision = 0
        self._whole_at = 0.0
        self._reading = asyncio.Lock()

    async def read(self) -> View:
        """Everything, best effort while it changes: before acting on an absence, call `find`. Raises Unavailable.

        Only changes since the last read are requested, and everything each WHOLE_S: changes show neither entries that
        expired nor that the bucket was created again.
        """
        async with self._reading:
            if time.monotonic() >= self._whole_at:
                self._whole_at, self._entries, self._revision = time.monotonic() + WHOLE_S, {}, 0
            changed, self._revision = await self._bucket.since(self._revision)
            self._entries.update(changed)
            return self._view()

    def _view(self) -> View:
        """A new copy for each caller, who may change it."""
        view = View({}, {}, frozenset())
        drained, renewed_at, noted = set[str](), dict[str, float](), list[tuple[int, Entry]]()
        for entry in self._entries.values():
            if entry is None:
                continue
            kind, _, about = entry.key.partition(".")
            if kind == record_keys.MEMBER:
                view.members[about] = Listed(_MEMBER.decode(entry.value), entry.revision)
                renewed_at[about] = entry.at
            elif kind == record_keys.CLAIM:
                view.claims[int(about)] = Claimed(_CLAIM.decode(entry.value), entry.revision)
            elif kind == record_keys.DRAINED:
                drained.add(about)
            elif kind == record_keys.HANDLED:
                noted.append((int(about), entry))
        claims = view.claims
        handled = {
            number: _HANDLED.decode(entry.value)
            for number, entry in noted
            if number not in claims or claims[number].revision < entry.revision
        }
        return view._replace(drained=frozenset(drained), renewed_at=renewed_at, handled=handled)

    async def find(self, member_id: str) -> Listed | None:
        """The member as it is stored now, or None. Raises Unavailable."""
        entry = await self._bucket.get(record_keys.member_key(member_id))
        return None if entry is None else Listed(_MEMBER.decode(entry.value), entry.revision)

    async def renew(self, member: Member, expect: int) -> int:
        """Store the member again and return the revision.

        Raises Conflict if it was removed or an earlier write succeeded after all; Full: the storage takes no writes;
        Unavailable (outcome unknown).
        """
        ttl = {TTL: f"{MEMBER_TTL_S:.0f}"}  # the broker removes a member that no other shard is there to remove
        return await self._write(record_keys.member_key(member.id), _ENCODER.encode(member), expect, ttl)

    async def remove(self, member_id: str, expect: int) -> None:
        """Remove the member: its claims have no owner from now on. Raises Conflict: it is alive, or already removed;
        Unavailable (outcome unknown)."""
        headers = {KV_OPERATION: "DEL", TTL: f"{MEMBER_TTL_S:.0f}"}
        await self._write(record_keys.member_key(member_id), b"", expect, headers)

    async def claim(self, number: int, claim: Claim, expect: int) -> int:
        """Write the claim and return its revision. Raises Conflict: another shard was faster; Unavailable (outcome
        unknown)."""
        return await self._write(record_keys.claim_key(number), _ENCODER.encode(claim), expect, {})

    async def note_handled(self, handled: Mapping[int, Handled]) -> None:
        """Write how far the owner of these partitions is: the next one begins there if this one dies. A note that comes
        late says less than a later owner's would, which is handled again then. Raises Unavailable (outcome
        unknown)."""
        await all_of(
            self._bucket.put(record_keys.handled_key(number), _ENCODER.encode(one)) for number, one in handled.items()
        )

    async def drain(self, engine: str) -> None:
        """Mark the engine as draining: its shards hand over what they own and take nothing more, as long as it lives.
        Raises Unavailable."""
        await self._sent(record_keys.drained_key(engine), b"", {TTL: f"{DRAINED_TTL_S:.0f}"})
        await self.announce_change()

    async def announce_change(self) -> None:
        """Notify every shard of a change. The notification may be lost: each shard also reads twice a second. Raises
        Unavailable."""
        await self._broker.publish(names.ENGINE_CHANGED, b"")

    async def on_change(self, changed: asyncio.Event) -> None:
        """Set the event at each announced change, as long as the connection lives."""

        async def set_it(_: Msg) -> None:
            changed.set()

        await self._broker.subscribe(names.ENGINE_CHANGED, set_it)

    async def answer(self, body: Callable[[], bytes]) -> None:
        """Answer requests for the owned partitions with the result of this function, as long as the connection
        lives."""

        async def reply(msg: Msg) -> None:
            await self._broker.publish(msg.reply, body())

        await self._broker.subscribe(names.ENGINE_PING, reply)

    async def _write(self, key: str, value: bytes, expect: int, headers: dict[str, str]) -> int:
        """Write once, without repeats: a repeated write with an expected revision would conflict with itself."""
        return await self._sent(key, value, {EXPECT_SEQ: str(expect), **headers})

    async def _sent(self, key: str, value: bytes, headers: dict[str, str]) -> int:
        try:
            answer = await self._broker.request(names.key_subject(names.ENGINES, key), value, WRITE_S_MAX, headers)
        except NotFound as error:
            raise Unavailable("broker: its stream storage is not available") from error
        found = orjson.loads(answer.data)
        if "error" in found:
            raise translated(found["error"])
        return int(found["seq"])
