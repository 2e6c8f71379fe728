"""Keeping the run index up with the log: one process of a host does it, behind a lock beside the file."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn

import structlog

from penstock.actors.index_file import MOVES, Change, IndexFile, Unfit, instant_us, prepare, remove
from penstock.broker.pull import Delivery
from penstock.broker.store import Store
from penstock.engine.errors import Conflict, Unavailable
from penstock.engine.events import Malformed, WorkflowScheduled, WorkflowStarted, decode

BATCH = 2000
CHANGES_MAX = 5000
QUIET_S = 0.002  # as long without anything new: write
WAIT_S_MAX = 0.05  # keep nothing back for longer than twice this
LOOK_S = 0.25  # as long without anything new: see whether something should have come
BEAT_S = 1.0
AGAIN_S = 0.2

# Events that never matter here, in the form that this service writes them. Any other body is decoded.
UNINTERESTING = tuple(b'{"type":"%s.' % family for family in (b"step", b"signal", b"timer", b"approval"))

log = structlog.get_logger()


class Lost(Exception):
    """The log has something that was not delivered: a new consumer must begin where the index stands."""


async def follow(store: Store, path: Path) -> NoReturn:
    """Keep the index at `path` up with the log until cancelled. Raises Conflict when another process does that already."""
    with exclusively(path):
        log.info("run_index_followed", path=str(path))
        while True:
            try:
                await _follow_stream(store, path)
            except Unavailable:
                pass  # the connection tells when the broker goes and comes
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
    path.parent.mkdir(parents=True, exist_ok=True)
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
    """One consumer's life: it takes what is delivered, and writes it in batches."""

    def __init__(self, store: Store, file: IndexFile, stream: str) -> None:
        self._store, self._file, self._stream = store, file, stream
        self._changes: list[Change] = []
        self._last: Delivery | None = None
        self._received = 0
        self._arrived = asyncio.Event()
        self._missing: int | None = None

    async def run(self) -> NoReturn:
        """Raises Lost, Unfit, Unavailable, sqlite3.DatabaseError; the file then stands at the last whole batch."""
        await self._look()
        async with self._store.history.tail(self._file.seq, self._take, batch=BATCH, room=self._room) as pull:
            while True:
                if await self._something_new():
                    await self._settle()
                    self._write()
                    await pull.top_up()
                else:
                    await self._look()

    def _take(self, delivery: Delivery) -> None:
        """The hot line of this process: most messages end in its first three statements."""
        self._received += 1
        self._last = delivery
        self._arrived.set()
        if not delivery.data.startswith(UNINTERESTING) and delivery.subject.startswith("history."):
            self._consider(delivery)

    def _consider(self, delivery: Delivery) -> None:
        try:
            event = decode(delivery.data)
        except Malformed:
            return  # no shard can read it either
        if type(event) not in MOVES:
            return
        run_id = delivery.subject.rpartition(".")[2]
        if isinstance(event, WorkflowStarted | WorkflowScheduled):
            created_us = instant_us(event.timestamp)
            if created_us is None:
                created_us = int(delivery.at * 1e6)
            self._changes.append(Change(run_id, type(event), event.payload.workflow, created_us))
        else:
            self._changes.append(Change(run_id, type(event)))

    def _room(self) -> int:
        return BATCH if len(self._changes) < CHANGES_MAX else 0

    async def _something_new(self) -> bool:
        try:
            async with asyncio.timeout(LOOK_S):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    async def _settle(self) -> None:
        """Wait while more keeps coming, each time twice as long: a transaction for a hundred events costs little more than for one."""
        wait_s = QUIET_S
        while self._arrived.is_set() and wait_s < WAIT_S_MAX:
            self._arrived.clear()
            await asyncio.sleep(wait_s)
            wait_s *= 2

    def _write(self) -> None:
        self._arrived.clear()
        assert self._last is not None
        if self._last.number != self._received:
            raise Lost(f"{self._last.number - self._received} deliveries did not arrive")
        self._file.write(self._changes, self._last.seq, time.time())
        self._changes.clear()

    async def _look(self) -> None:
        """Nothing has come for a while: go over what was removed from the log, or find out that something was lost."""
        tip = await self._store.history.tip()
        if tip.created != self._stream:
            raise Unfit("the log is another one")
        if tip.seq < self._file.seq:
            raise Unfit("the log has lost its end")
        if tip.seq > self._file.seq:
            await self._reach(tip.seq)
        if time.time() - self._file.beat >= BEAT_S:
            self._file.write((), self._file.seq, time.time())

    async def _reach(self, seq: int) -> None:
        """Advance to `seq`, a former end of the log, if nothing is stored before it that the index has not seen."""
        following = await self._store.history.seq_after(self._file.seq)
        if self._arrived.is_set():
            return
        if following is None or following > seq:
            self._file.write((), seq, time.time())
        elif following == self._missing:
            raise Lost(f"message {following} did not arrive")
        else:
            self._missing = following
