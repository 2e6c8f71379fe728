"""Filling the broker's storage up to its limit, and emptying it again."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from penstock.broker.nats.connection import Broker, connect
from penstock.broker.nats.errors import ApiError
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import PenstockError

STREAM, SUBJECT = "CHAOS_FILLER", "chaosfiller"
PIECE_BYTES = 1 << 20
TRIES_S = 30.0
ANSWER_S_MAX = 2.0
AT_ONCE = 16


async def fill(broker_url: str, seconds: float) -> bool:
    """Fill the store and keep it full for so long. False: a broker that was killed meanwhile kept it from being
    full."""
    full = False
    with suppress(PenstockError):
        async with connect(BrokerSettings(url=broker_url), "filler", timeout_s=TRIES_S) as broker:
            try:
                await broker.api(f"STREAM.CREATE.{STREAM}", {"name": STREAM, "subjects": [SUBJECT], "storage": "file"})
                full = await _filled(broker)
                if full:
                    await asyncio.sleep(seconds)
            finally:
                await _empty(broker)
    return full


async def _filled(broker: Broker) -> bool:
    """Whether the broker has begun to refuse what is published."""
    piece = os.urandom(PIECE_BYTES)
    while True:
        answers = await asyncio.gather(*(_taken(broker, piece) for _ in range(AT_ONCE)))
        if None in answers:
            return False
        if False in answers:
            return await _full_to_the_last(broker)


async def _full_to_the_last(broker: Broker) -> bool:
    """What is left is less than a piece; the service would still fit into it."""
    for size in (1 << 16, 1 << 12, 1 << 8):
        while await _taken(broker, os.urandom(size)):
            pass
    return True


async def _taken(broker: Broker, piece: bytes) -> bool | None:
    """Whether the broker has stored it; None: it gives no answer."""
    try:
        answer = await broker.request(SUBJECT, piece, ANSWER_S_MAX)
    except PenstockError:
        return None
    return b'"error"' not in answer.data


async def _empty(broker: Broker) -> None:
    """Remove it all; a broker that is away is waited for."""
    while True:
        try:
            await broker.api(f"STREAM.DELETE.{STREAM}")
            return
        except ApiError:  # there is none
            return
        except PenstockError:
            await asyncio.sleep(ANSWER_S_MAX / 4)
