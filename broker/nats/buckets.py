"""Key-value buckets, read and written through their streams; the revision is the stream sequence.

Faster than the client's own, and reads return everything that was acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from uuid import uuid4

from msgspec import Struct
from nats.aio.msg import Msg

from penstock.broker.nats.connection import REQUEST_TIMEOUT_S, Broker
from penstock.broker.nats.direct import DirectReader
from penstock.broker.nats.errors import ApiError, Code, Within
from penstock.broker.nats.headers import EXPECT_SEQ, KV_OPERATION, MSG_ID, TTL
from penstock.broker.nats.publisher import Publisher, ack_seq
from penstock.engine.errors import Conflict


class Entry(Struct, frozen=True):
    """`revision` is the one that a later `put` may expect; `at` is the broker's time of the write, in s."""

    key: str
    value: bytes
    revision: int
    at: float = 0.0


class Bucket:
    """One bucket."""

    def __init__(self, stream: str, prefix: str, broker: Broker, publisher: Publisher, reader: DirectReader) -> None:
        """`stream` is the bucket's stream; the subject of a key is `prefix` and the key."""
        self._stream, self._prefix, self._broker, self._publisher, self._reader = (
            stream,
            prefix,
            broker,
            publisher,
            reader,
        )

    async def get(self, key: str) -> Entry | None:
        """The key's value, or None. Raises Unavailable without an answer."""
        found = await self._reader.one(self._stream, self._prefix + key)
        return None if found is None or found.removed else Entry(key, found.data, found.seq, found.at)

    async def find(self, key: str) -> tuple[Entry | None, int]:
        """The value, or None, and the revision that a write to this state must expect: a deleted key also has a
        revision."""
        found = await self._reader.one(self._stream, self._prefix + key)
        if found is None or found.removed:
            return None, found.seq if found else 0
        return Entry(key, found.data, found.seq, found.at), found.seq

    async def has_copies(self) -> bool:
        """Whether a new value may reach some copies of the stream a moment later; `get` and `all` return it in any
        case."""
        return await self._reader.leaders.needed(self._stream)

    async def get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        """The values of those keys that exist; in a cluster, they may be slightly out of date."""
        cut = len(self._prefix)
        found = await self._reader.last(self._stream, [self._prefix + key for key in keys])
        return {
            one.subject[cut:]: Entry(one.subject[cut:], one.data, one.seq, one.at) for one in found if not one.removed
        }

    async def all(self, under: str = ">") -> list[Entry]:
        """Every entry whose key matches `under` (a subject filter); best effort while keys change."""
        cut = len(self._prefix)
        found = await self._reader.subject(self._stream, self._prefix + under)
        latest = {one.subject: one for one in found}
        return [Entry(one.subject[cut:], one.data, one.seq, one.at) for one in latest.values() if not one.removed]

    async def since(self, revision: int) -> tuple[dict[str, Entry | None], int]:
        """Changes after this revision, by key (None: removed), and the newest revision. Purges and expired entries are
        not among them."""
        cut = len(self._prefix)
        found = await self._reader.subject(self._stream, self._prefix + ">", revision + 1)
        changed = {
            one.subject[cut:]: None if one.removed else Entry(one.subject[cut:], one.data, one.seq, one.at)
            for one in found
        }
        return changed, found[-1].seq if found else revision

    def send(self, key: str, value: bytes, expect: int | None = None) -> asyncio.Future[bytes]:
        """Write without waiting. The future raises Conflict unless `expect` is the key's revision (0: no entry yet)."""
        return self._publisher.send(self._prefix + key, value, _expecting(expect))

    async def put(self, key: str, value: bytes, expect: int | None = None) -> int:
        """Write and return the new revision. Raises Conflict if `expect` is stale, Unavailable if the outcome is
        unknown."""
        return await self._write(key, value, _expecting(expect))

    async def delete(self, key: str, expect: int | None = None, ttl: str | None = None) -> None:
        """Remove the key, if it exists. Raises Conflict if its revision is not the expected one. What stays of it, so
        that no write that expects no entry succeeds, goes after `ttl` (`1h`; None: never)."""
        headers = {KV_OPERATION: "DEL", **(_expecting(expect) or {}), **({} if ttl is None else {TTL: ttl})}
        await self._write(key, b"", headers)

    async def keys(self, under: str = ">") -> list[str]:
        """The keys that match a subject filter, including deleted ones that the broker has not removed yet."""
        subjects = await self._broker.subjects(self._stream, self._prefix + under)
        return [subject[len(self._prefix) :] for subject in subjects]

    async def exists(self) -> bool:
        """Whether the bucket has been made. Raises Unavailable."""
        try:
            await self._broker.api(f"STREAM.INFO.{self._stream}")
        except ApiError as error:
            if error.err_code == Code.STREAM_NOT_FOUND:
                return False
            raise
        return True

    async def purge(self, under: str) -> int:
        """Remove every key that matches, with its history; returns the number of removed messages."""
        return await self._broker.remove(f"STREAM.PURGE.{self._stream}", {"filter": self._prefix + under})

    async def on_change(self, under: str, callback: Callable[[str], Awaitable[None]]) -> None:
        """Call `callback(key)` for each write that matches, at about the time when it is stored. A notification may be
        lost."""
        cut = len(self._prefix)

        async def notify(msg: Msg) -> None:
            await callback(msg.subject[cut:])

        await self._broker.subscribe(self._prefix + under, notify)

    def notifying(self, under: str, callback: Callable[[str], None]) -> AbstractAsyncContextManager[None]:
        """As `on_change`, for the time of the block."""
        cut = len(self._prefix)

        async def notify(msg: Msg) -> None:
            callback(msg.subject[cut:])

        return self._broker.listening(self._prefix + under, notify)

    @asynccontextmanager
    async def change_notification(self, key: str) -> AsyncIterator[asyncio.Event]:
        """An event that is set at about the time when the key is written. A notification may be lost, or come before
        the change can be read."""
        changed = asyncio.Event()
        async with self.notifying(key, lambda _: changed.set()):
            yield changed

    async def _write(self, key: str, value: bytes, headers: dict[str, str] | None) -> int:
        self._broker.check_connected()
        unknown = f"the broker gave no answer in time; whether {self._stream} was written is unknown"
        subject, mark = self._prefix + key, uuid4().hex
        marked = {**headers, MSG_ID: mark} if headers and EXPECT_SEQ in headers else headers
        async with Within(REQUEST_TIMEOUT_S, unknown):
            try:
                return ack_seq(await self._publisher.send(subject, value, marked, wait_if_full=False))
            except Conflict:
                found = await self._reader.one(self._stream, subject)
                if found is None or mark.encode() not in found.headers:
                    raise
                return found.seq  # it was this very write, whose answer got lost


def _expecting(revision: int | None) -> dict[str, str] | None:
    return None if revision is None else {EXPECT_SEQ: str(revision)}
