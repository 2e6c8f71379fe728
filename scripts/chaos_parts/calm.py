"""Waiting: until a service is ready, until all that was begun has ended, until the clock of its trigger stands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import orjson

from penstock.engine.errors import PenstockError

from .api import Api
from .gathering import Gathering
from .installation import Installation
from .ledger import Ledger
from .workflows import CRON, TRIGGERS

READY_S_MAX = 150.0
READY_AGAIN_S_MAX = 300.0  # after the last fault
LOOK_S = 0.5


class BadStart(Exception):
    """The service did not get ready, although nothing was done to it; the text says why."""


async def ready(api: Api, installation: Installation, within_s: float = READY_S_MAX) -> None:
    deadline = time.monotonic() + within_s
    while not await api.ready():
        if time.monotonic() > deadline:
            raise BadStart(f"the service did not get ready; its log ends with:\n{installation.last_words()}")
        await asyncio.sleep(LOOK_S / 10)


@asynccontextmanager
async def reading(gathering: Gathering) -> AsyncIterator[None]:
    """The log is read as it grows, for the time of the block and once more at its end."""
    reading = asyncio.create_task(_read(gathering))
    try:
        yield
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
    await gathering.read_on()


async def _read(gathering: Gathering) -> None:
    while True:
        with suppress(PenstockError):
            await gathering.read_on()
        await asyncio.sleep(LOOK_S)


async def stop_clock(api: Api, ledger: Ledger, gathering: Gathering, last_tick: int) -> None:
    """Once the cron trigger has made up for everything up to this second, disable it."""
    assert ledger.ticks is not None
    ledger.ticks.last = last_tick
    while gathering.last_tick < last_tick:  # noqa: ASYNC110 - the log is read at its own pace
        await asyncio.sleep(LOOK_S)
    trigger = next(one for one in TRIGGERS if one["name"] == CRON)
    await api.insist("PUT", f"/triggers/{CRON}", orjson.dumps({**trigger, "enabled": False}))


async def queued(gathering: Gathering) -> bool:
    """Whether a task is left, perhaps only because the broker has not heard that it was answered: then it is handed out
    again."""
    try:
        return bool(await gathering.queued())
    except PenstockError:
        return True
