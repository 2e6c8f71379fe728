"""Streams of blocking clients: the history of a run, log lines and chunks, resumed by sequence after a lost
connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import httpx2

from penstock.client import requests
from penstock.client.connection import BlockingConnection
from penstock.client.live.events import StreamEnd
from penstock.client.responses import LostError
from penstock.client.sending.following import Reconnects
from penstock.client.views import ChunkView, EventView, LogLineView
from penstock.engine.errors import Unavailable

L = TypeVar("L", LogLineView, ChunkView)


def follow(service: BlockingConnection, run_id: str, after: int) -> Iterator[EventView]:
    """The history of a run after stream sequence `after`, live, until the run ends: each event once. Raises
    NotFoundError, and UnavailableError as Reconnects says."""
    reconnects = Reconnects(service.retries)
    while True:
        try:
            with service.stream(run_id, after) as stream:
                reconnects.connected()
                for event in stream:
                    after = event.seq
                    yield event
            if (service.send(requests.get_run(run_id))).ended:
                for event in service.items(requests.events(run_id, after)):
                    after = event.seq
                    yield event
                return
        except LostError:
            pass
        except Unavailable as error:
            reconnects.failed(error)
        time.sleep(reconnects.pause_s)


def lines(
    service: BlockingConnection, url: httpx2.URL, read: Callable[[httpx2.ServerSentEvent], L | None], after: int
) -> Iterator[L]:
    """What a live stream says after `after`, until it ends. Raises as `follow`."""
    reconnects = Reconnects(service.retries)
    while True:
        try:
            with service.listen(url, after, read) as stream:
                reconnects.connected()
                for said in stream:
                    after = said.seq or after
                    yield said
        except StreamEnd:
            return
        except LostError:
            pass
        except Unavailable as error:
            reconnects.failed(error)
        time.sleep(reconnects.pause_s)
