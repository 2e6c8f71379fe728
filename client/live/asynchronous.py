"""Streams of asyncio clients: the history of a run, log lines and chunks, resumed by sequence after a lost
connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

import httpx2

from penstock.client import requests
from penstock.client.async_connection import AsyncConnection
from penstock.client.live.events import StreamEnd
from penstock.client.responses import LostError
from penstock.client.sending.following import Reconnects
from penstock.client.views import ChunkView, EventView, LogLineView
from penstock.engine.errors import Unavailable

L = TypeVar("L", LogLineView, ChunkView)


async def follow(service: AsyncConnection, run_id: str, after: int) -> AsyncGenerator[EventView]:
    """The history of a run after stream sequence `after`, live, until the run ends: each event once. Raises
    NotFoundError, and UnavailableError as Reconnects says."""
    reconnects = Reconnects(service.retries)
    while True:
        try:
            async with service.stream(run_id, after) as stream:
                reconnects.connected()
                async for event in stream:
                    after = event.seq
                    yield event
            if (await service.send(requests.get_run(run_id))).ended:
                async for event in service.items(requests.events(run_id, after)):
                    after = event.seq
                    yield event
                return
        except LostError:
            pass
        except Unavailable as error:
            reconnects.failed(error)
        await asyncio.sleep(reconnects.pause_s)


async def lines(
    service: AsyncConnection, url: httpx2.URL, read: Callable[[httpx2.ServerSentEvent], L | None], after: int
) -> AsyncGenerator[L]:
    """What a live stream says after `after`, until it ends. Raises as `follow`."""
    reconnects = Reconnects(service.retries)
    while True:
        try:
            async with service.listen(url, after, read) as stream:
                reconnects.connected()
                async for said in stream:
                    after = said.seq or after
                    yield said
        except StreamEnd:
            return
        except LostError:
            pass
        except Unavailable as error:
            reconnects.failed(error)
        await asyncio.sleep(reconnects.pause_s)
