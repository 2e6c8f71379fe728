"""The audit log: one stream for changes, one for refusals, so that a flood of refusals cannot push changes out.

A change is written down before it is made, with the outcome `unknown`; when its outcome is known, the entry is written
again under the same subject, and the stream keeps the last one only.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import merge

import msgspec
from msgspec import Struct, field

from penstock.broker import names
from penstock.broker.nats.connection import REQUEST_TIMEOUT_S, Broker
from penstock.broker.nats.direct import DirectReader
from penstock.broker.nats.errors import Within
from penstock.broker.nats.publisher import Publisher

END = 10**18 - 1  # a sequence that no stream reaches
STREAMS: Mapping[str, str] = {names.AUDIT: names.AUDIT_FILTER, names.REFUSALS: names.REFUSALS_SUBJECT}
WINDOW_MIN = 64


class AuditEntry(Struct, frozen=True, omit_defaults=True):
    """Who has done what. `at` is RFC 3339, `on` a path, `origin` the address of the client. `outcome` is done, refused,
    failed or unknown. `more`: as many other refusals before this one were only counted."""

    at: str
    who: str
    what: str
    on: str
    origin: str = field(name="from")
    outcome: str
    status: int | None = None
    more: int = 0


class AuditPage(Struct, frozen=True):
    """Entries, newest first; `next` is the cursor of the next page, None at the end."""

    entries: list[AuditEntry]
    next: tuple[int, int] | None


_DECODER = msgspec.json.Decoder(AuditEntry)


class Audit:
    """The two streams of the audit log."""

    def __init__(self, broker: Broker, publisher: Publisher, reader: DirectReader) -> None:
        self._broker, self._publisher, self._reader = broker, publisher, reader

    async def write(self, entry_id: str, entry: AuditEntry) -> None:
        """Write an entry of a change, in place of an earlier one of this id. Raises Unavailable (outcome unknown)."""
        await self._send(names.audit_subject(entry_id), entry)

    async def write_refusal(self, entry: AuditEntry) -> None:
        """Write an entry of a refusal. Raises Unavailable (outcome unknown)."""
        await self._send(names.REFUSALS_SUBJECT, entry)

    async def page(self, limit: int, before: tuple[int, int] = (END, END)) -> AuditPage:
        """Up to `limit` entries of both streams, older than the cursor `before`. Raises Unavailable."""
        parts = [
            await self._newest(stream, subject, limit + 1, end)
            for (stream, subject), end in zip(STREAMS.items(), before, strict=True)
        ]
        numbered = [[(entry, at, seq) for seq, entry in part] for at, part in enumerate(parts)]
        found = list(merge(*numbered, key=lambda one: one[0].at, reverse=True))
        ends = list(before)
        for _, at, seq in found[:limit]:
            ends[at] = seq
        return AuditPage([entry for entry, _, _ in found[:limit]], (ends[0], ends[1]) if len(found) > limit else None)

    async def _newest(self, stream: str, subject: str, limit: int, before: int) -> list[tuple[int, AuditEntry]]:
        """The newest entries with a sequence below `before`, newest first."""
        state = (await self._broker.api(f"STREAM.INFO.{stream}"))["state"]
        first, high = int(state["first_seq"]), min(int(state["last_seq"]), before - 1)
        found: list[tuple[int, AuditEntry]] = []
        window = max(WINDOW_MIN, 2 * limit)
        while high >= first and len(found) < limit:
            low = max(first, high - window + 1)
            part = [
                (one.seq, _DECODER.decode(one.data)) async for one in self._reader.between(stream, subject, low, high)
            ]
            found += part[::-1]
            high, window = low - 1, window * 2
        return found[:limit]

    async def _send(self, subject: str, entry: AuditEntry) -> None:
        self._broker.check_connected()
        async with Within(REQUEST_TIMEOUT_S, "the broker gave no answer in time; whether it was written is unknown"):
            await self._publisher.send(subject, msgspec.json.encode(entry), wait_if_full=False)
