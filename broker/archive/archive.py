"""The ARCHIVED_RUNS stream: one message for each run that ended long ago, all under one subject.

A run is found by the sequence of its message. The mark in its history has that, or else the run index of this host,
which follows the stream. A message is stored before the history goes, and goes after everything that leads to it.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from msgspec import MsgspecError

from penstock.broker import names
from penstock.broker.archive.archived_runs import ArchivedRun, ArchiveMark, decode_archived
from penstock.broker.nats.connection import Broker
from penstock.broker.nats.direct import DirectReader
from penstock.broker.nats.errors import ApiError, Code
from penstock.broker.nats.publisher import Publisher, ack_seq
from penstock.broker.nats.tail import Tail, open_tail
from penstock.config.logging import get_logger
from penstock.config.process.background import all_of
from penstock.engine.errors import Unavailable

FOUND_S_MAX = 1.0  # for the index to read what was archived just now
POLL_S = 0.02
ASKED_AGAIN_S = 10.0  # whether somebody has begun to use the archive
CALLS_AT_ONCE = 32

Places: TypeAlias = Callable[[Collection[str]], tuple[Mapping[str, int], int]]
"""The messages of those of these runs that the run index knows to be archived, and up to which message it has read the
archive. Raises Unavailable while there is no index."""

log = get_logger()


class Archive:
    """The stream. Connection, publisher and reader belong to the caller. `after_s` is the setting: None, nobody
    archives. `places` is set by whoever has a run index."""

    def __init__(self, broker: Broker, publisher: Publisher, reader: DirectReader, after_s: float | None) -> None:
        self.after_s = after_s
        self.places: Places | None = None
        self._broker, self._publisher, self._reader = broker, publisher, reader
        self._used, self._asked_at = after_s is not None, -ASKED_AGAIN_S
        self._calls = asyncio.Semaphore(CALLS_AT_ONCE)

    async def in_use(self) -> bool:
        """Whether a run may be archived. It costs nothing, but a question to the broker from time to time."""
        if not self._used and time.monotonic() - self._asked_at > ASKED_AGAIN_S:
            self._asked_at = time.monotonic()
            self._used = await self.tip() > 0
        return self._used

    async def tip(self) -> int:
        """The sequence of the last message that was ever stored. Raises Unavailable."""
        try:
            return int((await self._broker.api(f"STREAM.INFO.{names.ARCHIVE}"))["state"]["last_seq"])
        except ApiError as error:
            if error.err_code != Code.STREAM_NOT_FOUND:
                raise
            return 0

    async def put(self, body: bytes) -> int:
        """Store a run, and return its sequence. A message id would take more room than a repeat, which is removed
        later. Raises TooLarge."""
        return ack_seq(await self._publisher.send(names.ARCHIVED, body))

    async def body(self, seq: int) -> bytes | None:
        """The message as it is stored; None when it is gone. Raises Unavailable."""
        found = await self._reader.surely_at(names.ARCHIVE, seq)
        return None if found is None else found.data

    async def bodies(self, seqs: Collection[int]) -> dict[int, bytes]:
        """As `body`, of messages that were stored one after the other. Those that are gone are left out."""
        if not seqs:
            return {}
        stored = self._reader.between(names.ARCHIVE, names.ARCHIVED, min(seqs), max(seqs))
        return {one.seq: one.data async for one in stored if one.seq in seqs}

    async def remove(self, seqs: Collection[int]) -> None:
        """Remove these messages, those that are there. Raises Unavailable (it may be repeated)."""
        for seq in seqs:
            await self._broker.remove(f"STREAM.MSG.DELETE.{names.ARCHIVE}", {"seq": seq, "no_erase": True})

    async def get(self, run_id: str, seq: int) -> ArchivedRun | None:
        """The run in this message; None when it is gone, or another's. Raises Unavailable, NeedsUpgrade."""
        async with self._calls:
            body = await self.body(seq)
        found = None if body is None else readable(body, seq)
        return found if found is not None and found.run_id == run_id else None

    async def marked(self, mark: ArchiveMark) -> ArchivedRun | None:
        """The run to which the mark leads; if that message was removed, because there is a later one, the later
        one."""
        return await self.get(mark.run_id, mark.payload.seq) or await self.find(mark.run_id)

    async def find(self, run_id: str) -> ArchivedRun | None:
        """The run, if it is archived. Raises Unavailable as long as that is not known."""
        return (await self.find_all([run_id])).get(run_id)

    async def find_all(self, run_ids: Sequence[str]) -> dict[str, ArchivedRun]:
        """As `find`, of many runs."""
        places = await self.among(run_ids)
        found = await all_of(self.get(run_id, seq) for run_id, seq in places.items())
        gone = [run_id for run_id, run in zip(places, found, strict=True) if run is None]
        # archived again meanwhile, or removed
        later = {run_id: seq for run_id, seq in (await self.surely_among(gone)).items() if seq != places[run_id]}
        found += await all_of(self.get(run_id, seq) for run_id, seq in later.items())
        return {run.run_id: run for run in found if run is not None}

    async def among(self, run_ids: Collection[str]) -> Mapping[str, int]:
        """Those of these runs that are archived, with their messages: the latest, or such as are gone. Raises
        Unavailable as long as that is not known."""
        if not run_ids or not await self.in_use():
            return {}
        found, _ = self._asked(run_ids)
        return found if len(found) == len(run_ids) else await self.surely_among(run_ids)

    async def surely_among(self, run_ids: Collection[str]) -> Mapping[str, int]:
        """As `among`, with their latest messages: by an index that has read all that is archived by now."""
        tip = await self.tip() if run_ids and await self.in_use() else 0
        deadline = time.monotonic() + FOUND_S_MAX
        while tip:
            found, read = self._asked(run_ids)
            if read >= tip:
                return found
            if self.places is None or time.monotonic() >= deadline:
                raise Unavailable(f"the run may be archived: the run index has read {read} of {tip} archived runs")
            await asyncio.sleep(POLL_S)
        return {}

    def _asked(self, run_ids: Collection[str]) -> tuple[Mapping[str, int], int]:
        """What the index says, and up to where it has read; nothing without an index."""
        try:
            return ({}, 0) if self.places is None else self.places(run_ids)
        except Unavailable:
            return {}, 0

    def tail(self, after: int) -> AbstractAsyncContextManager[Tail]:
        """A reader of everything after a sequence, for the time of the block."""
        return open_tail(self._broker, names.ARCHIVE, after)


def readable(body: bytes, seq: int) -> ArchivedRun | None:
    """The run in a message; None, and a log event, for what is none. Raises NeedsUpgrade."""
    try:
        return decode_archived(body, seq)
    except (zlib.error, MsgspecError, EOFError) as error:
        log.error("archived_run_unreadable", seq=seq, error=str(error))
        return None
