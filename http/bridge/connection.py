"""The stream of a connected worker: as long as it lasts, the worker is registered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

import msgspec
import orjson

from penstock.broker.nats.buckets import Bucket
from penstock.broker.worker_messages import CancelledTask, WorkerRegistration
from penstock.broker.worker_protocol import reports
from penstock.broker.worker_protocol.registrations import deregister, register
from penstock.config.limits import BRIDGE_COMMENT_S, BRIDGE_HEARTBEAT_S
from penstock.config.logging import get_logger
from penstock.config.process.background import first_of
from penstock.engine.errors import Unavailable

COMMENT = b":\n\n"
CANCELS_MAX = 1000  # that wait for a worker which reads slowly

log = get_logger()


class CancelInbox:
    """The cancelled executions of a worker, until its connect stream has sent it. Owned by the
    stream."""

    def __init__(self) -> None:
        self._waiting: list[CancelledTask] = []
        self.filled = asyncio.Event()

    def put(self, cancelled: CancelledTask) -> None:
        """What does not fit is dropped: the worker learns it at its next sign of life."""
        if len(self._waiting) < CANCELS_MAX:
            self._waiting.append(cancelled)
        self.filled.set()

    def take(self) -> list[CancelledTask]:
        self.filled.clear()
        taken, self._waiting = self._waiting, []
        return taken


async def heartbeat_stream(
    bucket: Bucket,
    entry: WorkerRegistration,
    revision: int,
    over: asyncio.Event,
    stale: asyncio.Event,
    cancels: CancelInbox,
    heartbeat_s: float = BRIDGE_HEARTBEAT_S,
    comment_s: float = BRIDGE_COMMENT_S,
) -> AsyncGenerator[bytes]:
    """Server-sent events until `over`: regular heartbeats, each with the registration renewed, comments between, and
    executions that are cancelled.

    `revision` is that of the registration; at the end it is removed, unless another connection of the worker has
    written it again. It is also renewed at the next comment when it is `stale`.
    """
    last: int | None = revision
    now = asyncio.get_running_loop().time
    beat_at, comment_at = now() + heartbeat_s, now() + comment_s
    try:
        yield COMMENT
        while not await _over_before(comment_at, over, cancels.filled):
            for cancelled in cancels.take():
                yield b"event: cancel\ndata: %b\n\n" % msgspec.json.encode(cancelled)
            if now() < comment_at:
                continue
            comment_at += comment_s
            beats = now() >= beat_at
            if beats or stale.is_set():
                stale.clear()
                last = await _renewed(bucket, entry, last)
            if beats:
                beat_at += heartbeat_s
            yield b"event: heartbeat\ndata: %b\n\n" % orjson.dumps({"at": reports.now()}) if beats else COMMENT
    finally:
        await deregister(bucket, entry.worker_id, last)


async def _over_before(at: float, over: asyncio.Event, filled: asyncio.Event) -> bool:
    """Wait until then, or until something is there to be sent. Returns whether the stream is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(at):
            if not (over.is_set() or filled.is_set()):
                await first_of(over.wait(), filled.wait(), name="worker_stream")
    return over.is_set()


async def _renewed(bucket: Bucket, entry: WorkerRegistration, last: int | None) -> int | None:
    try:
        return await register(bucket, entry)
    except Unavailable as error:  # the next heartbeat tries again
        log.warning("registration_not_renewed", worker_id=entry.worker_id, error=str(error))
        return last
