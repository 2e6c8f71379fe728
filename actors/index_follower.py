"""Keeping the run index up with the log: one process of a host does it, behind a lock beside the file."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn

from penstock.actors.index_file import MOVES, Change, IndexFile, Unfit, instant_us, prepare, remove
from penstock.broker.pull import Delivery
from penstock.broker.store import Store
from penstock.broker.tail import Lost, Tail
from penstock.config.logging import get_logger
from penstock.engine.errors import Conflict, NeedsUpgrade, PenstockError, Unavailable
from penstock.engine.events import IN_BETWEEN, Malformed, WorkflowScheduled, WorkflowStarted, decode

GULP = 2000
LOOK_S = 0.25  # as long without anything new: see whether something should have come
BEAT_S = 1.0
REST_S_PER_MESSAGE, REST_S_MAX = 0.003, 0.05  # after a write, so that a busy log is read in a few large gulps
AGAIN_S = 0.5

log = get_logger()


async def follow(store: Store, path: Path) -> NoReturn:
    """Keep the index at `path` up with the log until cancelled. Raises Conflict when another process does that already."""
    with exclusively(path):
        log.info("run_index_followed", path=str(path))
        while True:
            try:
                await _follow_stream(store, path)
            except Conflict:
                raise
            except Unavailable:
                pass  # the connection tells when the broker goes and comes
            except PenstockError as error:
                log.warning("run_index_waits", reason=str(error))
            except Unfit as error:
                log.warning("run_index_rebuilt", reason=str(error))
                remove(path)
            except sqlite3.DatabaseError as error:
                log.error("run_index_broken", error=str(error))
                if not isinstance(error, sqlite3.OperationalError):  # which also says that the disk is full
                    remove(path)
            await asyncio.sleep(AGAIN_S)


async def follow_when_free(store: Store, path: Path, retry_s: float = 1.0) -> NoReturn:
    """Follow as soon as nobody else does, until cancelled."""
    while True:
        try:
            await follow(store, path)
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


async def _follow_stream(store: Store, path: Path) -> NoReturn:
    tip = await store.history.tip()
    await asyncio.to_thread(prepare, path, tip.created)
    with closing(IndexFile(path)) as file:
        while True:
            try:
                await _Follower(store, file, tip.created).run()
            except Lost as error:
                log.info("run_index_consumer_renewed", after=file.seq, reason=str(error))


class _Follower:
    """One consumer's life: it reads in gulps, and writes each of them in one transaction."""

    def __init__(self, store: Store, file: IndexFile, stream: str) -> None:
        self._history, self._file, self._stream = store.history, file, stream
        self._missing: int | None = None

    async def run(self) -> NoReturn:
        """Raises Lost, Unfit, Unavailable, sqlite3.DatabaseError; the file then stands at the last whole gulp."""
        await self._look()
        async with self._history.tail(self._file.seq) as tail:
            while True:
                gulp = await tail.next(LOOK_S)
                if gulp:
                    await asyncio.sleep(await self._read_on(tail, gulp))
                else:
                    await self._look()

    async def _read_on(self, tail: Tail, gulp: list[Delivery]) -> float:
        """Take all that waits behind the first message, and write it. Returns how long to rest: after much, more may gather."""
        if gulp[0].pending:
            gulp += await tail.waiting(GULP)
        self._file.write(list(_changes(gulp)), gulp[-1].seq, time.time())
        return 0.0 if len(gulp) > GULP else min(REST_S_MAX, len(gulp) * REST_S_PER_MESSAGE)

    async def _look(self) -> None:
        """Nothing has come for a while: go over what was removed from the log, or find out that something was lost."""
        tip = await self._history.tip()
        if tip.created != self._stream:
            raise Unfit("the log is another one")
        if tip.seq < self._file.seq:
            raise Unfit("the log has lost its end")
        if tip.seq > self._file.seq:
            await self._reach(tip.seq)
        if abs(time.time() - self._file.beat) >= BEAT_S:  # the clock may have been set back
            self._file.write((), self._file.seq, time.time())

    async def _reach(self, seq: int) -> None:
        """Advance to `seq`, a former end of the log, if all that is stored up to there is in the index."""
        following = await self._history.seq_after(self._file.seq)
        if following is None or following > seq:
            self._file.write((), seq, time.time())
        elif following == self._missing:
            raise Lost(f"message {following} did not arrive")
        else:
            self._missing = following


def _changes(gulp: Sequence[Delivery]) -> Iterator[Change]:
    for delivery in gulp:
        if not delivery.data.startswith(IN_BETWEEN) and (change := _change(delivery)):
            yield change


def _change(delivery: Delivery) -> Change | None:
    """What a message of the log means here. What no shard can read changes nothing here either; what a newer version can read is
    read by it: it makes the index anew."""
    if not delivery.subject.startswith("history."):
        return None
    try:
        event = decode(delivery.data)
    except (Malformed, NeedsUpgrade):
        return None
    run_id = delivery.subject.rpartition(".")[2]
    if isinstance(event, WorkflowStarted | WorkflowScheduled):
        created_us = instant_us(event.timestamp)
        return Change(run_id, type(event), event.payload.workflow, int(delivery.at * 1e6) if created_us is None else created_us)
    return Change(run_id, type(event)) if type(event) in MOVES else None
