"""The follower of the run index: one process of a host writes the log's changes to the file, under a file lock."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import NoReturn

from penstock.actors.index.archived import Archived, row_of
from penstock.actors.index.changes import UNWANTED, changes
from penstock.actors.index.file import IndexFile, IndexProgress, Unfit, ends_to_confirm, prepare, remove
from penstock.actors.index.instants import instant_us
from penstock.actors.index.lost_beginnings import lost_beginnings
from penstock.actors.index.rows import Change, News, Row, State, pause_texts
from penstock.broker.archive.archive import readable
from penstock.broker.archive.archived_runs import MARK_STARTS
from penstock.broker.nats.pull import Delivery
from penstock.broker.nats.tail import Lost, ReadBatch, Tail
from penstock.broker.store import Store
from penstock.broker.streams.history import Tip
from penstock.config.logging import get_logger
from penstock.engine.errors import Conflict, PenstockError, Unavailable
from penstock.engine.run.events import REMOVED_RUN, WorkflowRemoved
from penstock.engine.run.state import Run

BATCH = 2000
IDLE_CHECK_S = 1.0  # without a message for so long, check whether one was lost
BEAT_S = 1.0
PAUSE_S_PER_MESSAGE, PAUSE_S_MAX = 0.003, 0.05  # after a write, so that a busy log is read in a few large batches
BURST, BURST_PAUSE_S = 200, 0.1  # messages in a batch: in a burst, more and smaller writes make no list fresher
RETRY_S = 0.5
RENEW_S = 0.05
LEADS_TO_ARCHIVE = (*MARK_STARTS, REMOVED_RUN)
CONFIRM_AFTER_S = 2.0  # so that a run with several changes in quick succession is folded once
CONFIRMED_AT_ONCE = 20  # an engine that is far behind must not be slowed down by being read
ARCHIVE_CHECK_S = 1.0  # where runs are archived: how often the archive is looked at, if no mark of one comes
QUIET_S = 10.0  # the same error is logged again after so long

Fold = Callable[[Store, Sequence[str]], Awaitable[list[Run]]]
"""The runs of these ids as their logs say, those that exist. Raises Unavailable."""

log = get_logger()


async def follow(store: Store, path: Path, fold: Fold) -> NoReturn:
    """Write the log's changes to the index at `path` until cancelled; `fold` loads the runs that must be confirmed.

    Raises Conflict when another process does that already.
    """
    with exclusively(path):
        log.info("run_index_followed", path=str(path))
        last_error, last_error_at = "", 0.0
        while True:
            try:
                await _follow_stream(store, path, fold)
            except Conflict:
                raise
            except Unavailable:
                pass  # the connection logs when the broker goes and comes back
            except PenstockError as error:
                log.warning("run_index_waits_for_broker", reason=str(error))
            except Unfit as error:
                log.warning("run_index_rebuilt", reason=str(error))
                remove(path)
            except sqlite3.DatabaseError as error:
                if str(error) != last_error or time.monotonic() - last_error_at > QUIET_S:
                    log.error("run_index_broken", error=str(error))
                last_error, last_error_at = str(error), time.monotonic()
                if not isinstance(error, sqlite3.OperationalError):  # which also says that the disk is full
                    remove(path)
            await asyncio.sleep(RETRY_S)


async def follow_when_free(store: Store, path: Path, fold: Fold, retry_s: float = 1.0) -> NoReturn:
    """Follow as soon as no other process does, until cancelled."""
    while True:
        try:
            await follow(store, path, fold)
        except Conflict:
            await asyncio.sleep(retry_s)


@contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """Hold the lock beside the index for the time of the block; it also goes when the process dies. Raises Conflict."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise Conflict(f"another process keeps the run index {path}") from error
    finally:
        os.close(handle)


async def _follow_stream(store: Store, path: Path, fold: Fold) -> NoReturn:
    tip = await store.history.tip()
    await asyncio.to_thread(prepare, path, tip.created)
    with closing(IndexFile(path)) as file:
        while True:
            try:
                await _Follower(store, file, await _start(store, file), fold).run(
                    await asyncio.to_thread(ends_to_confirm, path)
                )
            except Lost as error:
                log.info("run_index_consumer_renewed", after=file.at.seq, reason=str(error))
                await asyncio.sleep(RENEW_S)


async def _start(store: Store, file: IndexFile) -> Tip:
    """The log as it is now. Raises Unfit when something was removed from it that the file should have seen; a new file
    sees that it has not `whole` runs."""
    tip = await store.history.tip()
    if file.at.seq and tip.first > file.at.seq + 1:
        raise Unfit("the log has lost what was not read")
    return tip


def took_us(run: Run) -> int | None:
    """How long the run took from its start to its end, None while it has not ended."""
    begun, ended = started_us(run), instant_us(run.finished_at) if run.finished_at else None
    return None if begun is None or ended is None else max(0, ended - begun)


def started_us(run: Run) -> int | None:
    """When the run started, None for one that is scheduled or pending."""
    return instant_us(run.started_at) if run.started_at else None


class _Follower:
    """Reads the log by one consumer, and writes each batch to the file in one transaction."""

    def __init__(self, store: Store, file: IndexFile, tip: Tip, fold: Fold) -> None:
        self._store, self._file, self._tip, self._fold = store, file, tip, fold
        self._missing: int | None = None
        self._archive_read_at = 0.0
        self._unconfirmed: dict[str, float] = {}

    async def run(self, to_confirm: Sequence[str]) -> NoReturn:
        """Raises Lost, Unfit, Unavailable, sqlite3.DatabaseError; the file then has all whole batches."""
        self._unconfirmed = dict.fromkeys(to_confirm, time.monotonic())
        await self._read_archive()  # first: the log may go on with runs that are in it
        await self._check_idle()
        async with self._store.history.tail(self._file.at.seq, UNWANTED) as tail:
            burst = False
            while True:
                batch = await (tail.waiting(BATCH) if burst else tail.next(IDLE_CHECK_S))
                if batch.last is not None:
                    await asyncio.sleep(await self._read_on(tail, batch, batch.last))
                elif not burst:
                    await self._check_idle()
                burst = batch.messages > BURST
                await self._confirm()
                if time.monotonic() - self._archive_read_at > ARCHIVE_CHECK_S and await self._store.archive.in_use():
                    await self._read_archive()
                if not self._file.at.whole and self._file.at.seq >= self._tip.seq:
                    await self._make_whole()

    async def _read_on(self, tail: Tail, batch: ReadBatch, last: Delivery) -> float:
        """Write the first messages and all that wait behind them. Returns how long to pause, in s, so that more can
        gather. What was there at the start is read in half of the time: runs that wait for the engine come first."""
        begun = time.monotonic()
        if last.pending and batch.messages == 1:
            batch += await tail.waiting(BATCH)
            last = batch.last or last
        if any(read.data.startswith(LEADS_TO_ARCHIVE) for read in batch.reads):
            await self._read_archive()
        news = changes(batch.reads)
        gone = [one.run_id for one in news if isinstance(one, Change) and one.kind is WorkflowRemoved]
        self._write(news, self._file.at._replace(seq=last.seq, as_of=last.at), gone)
        if last.seq < self._tip.seq:
            return time.monotonic() - begun
        if batch.messages >= BATCH:
            return 0.0
        return BURST_PAUSE_S if batch.messages > BURST else min(PAUSE_S_MAX, batch.messages * PAUSE_S_PER_MESSAGE)

    async def _read_archive(self) -> None:
        """Read what is archived by now."""
        tip = await self._store.archive.tip()
        self._archive_read_at = time.monotonic()
        if tip <= (upto := self._file.archive_seq):
            return
        async with self._store.archive.tail(upto) as tail:
            while upto < tip:
                batch = await tail.waiting(BATCH)
                upto = tip if batch.last is None else batch.last.seq
                runs = [run for one in batch.reads if (run := readable(one.data, one.seq)) is not None]
                found = [Archived(run.run_id, run.seq, run.last_seq) for run in runs]
                self._note(self._file.write_archived([row_of(run) for run in runs], found, upto))
                self._write()
                await asyncio.sleep(0)

    async def _make_whole(self) -> None:
        """Add the runs whose first event is not in the log any more, once the log is read."""
        async for rows in lost_beginnings(self._store, self._file.unknown):
            self._write(rows)
        self._write((), self._file.at._replace(whole=True))

    def _write(self, news: Sequence[News] = (), at: IndexProgress | None = None, gone: Sequence[str] = ()) -> None:
        """Fold these news in, delete the rows of what is `gone`, and move the progress to `at`, or leave it."""
        at = (at or self._file.at)._replace(beat=time.time())
        for run_id in gone:
            self._unconfirmed.pop(run_id, None)
        self._note(self._file.write(news, at, gone))

    def _note(self, changed: Mapping[str, Row]) -> None:
        """Note which of these rows must be confirmed."""
        now = time.monotonic()
        if self._unconfirmed:
            for run_id in changed.keys() & self._unconfirmed.keys():
                if not changed[run_id].unconfirmed:
                    del self._unconfirmed[run_id]
        for row in changed.values():
            if row.status_seq > row.confirmed:  # as `unconfirmed`, without a call for each
                self._unconfirmed.setdefault(row.run_id, now)

    async def _confirm(self) -> None:
        """Fold some of the runs whose status is not certain: another than the owner wrote an end, it was resumed, or
        a limit has granted it a slot."""
        before = time.monotonic() - CONFIRM_AFTER_S
        due = [run_id for run_id, since in islice(self._unconfirmed.items(), CONFIRMED_AT_ONCE) if since < before]
        if not due:
            return
        upto = self._file.at.seq
        runs = await self._fold(self._store, due)
        states = [
            State(run.run_id, run.status, run.seq, upto, pause_texts(run.pause), took_us(run), started_us(run))
            for run in runs
        ]
        for run_id in due:
            self._unconfirmed.pop(run_id, None)
        if states:
            self._write(states)

    async def _check_idle(self) -> None:
        """No message came for a while: advance over what was removed from the log, or detect a lost message."""
        tip = await self._store.history.tip()
        if tip.created != self._tip.created:
            raise Unfit("the log is another one")
        if tip.seq < self._file.at.seq:
            raise Unfit("the log has lost its end")
        if tip.seq > self._file.at.seq:
            await self._reach(tip)
        elif abs(time.time() - self._file.at.beat) >= BEAT_S:  # the clock may have been set back
            self._write((), self._file.at._replace(as_of=tip.at))

    async def _reach(self, tip: Tip) -> None:
        """Advance to a former end of the log, if all that is stored up to there is in the index."""
        following = await self._store.history.seq_after(self._file.at.seq)
        if following is None or following > tip.seq:
            self._write((), self._file.at._replace(seq=tip.seq, as_of=tip.at))
        elif following == self._missing:
            raise Lost(f"message {following} did not arrive")
        else:
            self._missing = following
