"""The stream of a connected worker: as long as it lasts, the worker is registered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

import orjson

from penstock.broker.nats.buckets import Bucket
from penstock.broker.worker_messages import WorkerRegistration
from penstock.broker.worker_protocol.registrations import deregister, register
from penstock.broker.worker_protocol.reports import now
from penstock.config.limits import BRIDGE_COMMENT_S, BRIDGE_HEARTBEAT_S
from penstock.config.logging import get_logger
from penstock.engine.errors import Unavailable

COMMENT = b":\n\n"

log = get_logger()


async def heartbeat_stream(
    bucket: Bucket,
    entry: WorkerRegistration,
    revision: int,
    over: asyncio.Event,
    stale: asyncio.Event,
    heartbeat_s: float = BRIDGE_HEARTBEAT_S,
    comment_s: float = BRIDGE_COMMENT_S,
) -> AsyncGenerator[bytes]:
    """Server-sent events until `over`: regular heartbeats, each with the registration renewed, and comments between.

    `revision` is that of the registration; at the end it is removed, unless another connection of the worker has
    written it again. It is also renewed at the next comment when it is `stale`.
    """
    last: int | None = revision
    beat_at = asyncio.get_running_loop().time() + heartbeat_s
    try:
        yield COMMENT
        while not await _over_within(over, comment_s):
            beats = asyncio.get_running_loop().time() >= beat_at
            if beats or stale.is_set():
                stale.clear()
                last = await _renewed(bucket, entry, last)
            if beats:
                beat_at += heartbeat_s
            yield b"event: heartbeat\ndata: %b\n\n" % orjson.dumps({"at": now()}) if beats else COMMENT
    finally:
        await deregister(bucket, entry.worker_id, last)


async def _over_within(over: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await over.wait()
    return over.is_set()


async def _renewed(bucket: Bucket, entry: WorkerRegistration, last: int | None) -> int | None:
    try:
        return await register(bucket, entry)
    except Unavailable as error:  # the next heartbeat tries again
        log.warning("registration_not_renewed", worker_id=entry.worker_id, error=str(error))
        return last
