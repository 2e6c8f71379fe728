"""Many clients that connect at the same moment: a busy front end keeps all of them waiting, and answers each."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack

from penstock.config.settings import BrokerSettings
from tests.support.frontends import FrontEnd, front_ends

CLIENTS = 400  # more than uvloop lets wait
CONNECTED_S_MAX = 10
HEAD = b"POST /nowhere HTTP/1.1\r\nHost: penstock\r\nConnection: close\r\nContent-Length: 2\r\n\r\n"


async def test_connections_that_come_while_a_front_end_is_busy_are_all_answered(
    broker_settings: BrokerSettings,
) -> None:
    with front_ends(broker_settings, 1, None) as (front_end,):
        async with AsyncExitStack() as stack:
            front_end.send_signal(signal.SIGSTOP)
            try:
                async with asyncio.timeout(CONNECTED_S_MAX):
                    opened = [await _connected(front_end) for _ in range(CLIENTS)]
            finally:
                front_end.send_signal(signal.SIGCONT)
            for _, writer in opened:
                stack.callback(writer.close)
            answers = await asyncio.gather(*(reader.readline() for reader, _ in opened))
    assert {b"HTTP/1.1 404 Not Found\r\n"} == set(answers)


async def _connected(front_end: FrontEnd) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection with a request in two parts."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front_end.port)
    for part in (HEAD, b"{}"):
        writer.write(part)
        await asyncio.sleep(0)
    return reader, writer
