"""A front end that stops while its broker is frozen answers who waits: 503, and never 500."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.broker.store import open_store
from penstock.broker.streams.provisioning import provision
from tests.http.bridge import TOKEN
from tests.support.frontends import front_ends
from tests.support.own_broker import own_broker

BODY = b'{"workflow":"any"}'
START = b"POST /runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(BODY)
OTHER = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
PROBLEM = b"Accept: application/problem+json\r\n"


async def test_requests_that_a_stop_cuts_off_are_answered_503(tmp_path: Path) -> None:
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
        with front_ends(broker.settings, 1, TOKEN) as (end,):
            waiting = [await asyncio.open_connection("127.0.0.1", end.port) for _ in range(2)]
            reader, other = await asyncio.open_connection("127.0.0.1", end.port)
            await broker.freeze()
            try:
                for (_, writer), accept in zip(waiting, (b"", PROBLEM), strict=True):
                    writer.write(START + accept + b"\r\n" + BODY)
                    await writer.drain()
                other.write(OTHER)  # answered after those two were taken
                assert b"404" in await reader.readline()
                stopping = asyncio.ensure_future(asyncio.to_thread(end.stop))
                plain, problem = [await reader.read() for reader, _ in waiting]
                await stopping
            finally:
                broker.go_on()
            for writer in (other, *[writer for _, writer in waiting]):
                writer.close()
    for answer in (plain, problem):
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"\r\nretry-after: 1\r\n" in answer.lower()
    assert plain.endswith(b"\r\n\r\nthe service stops; whether the request took effect is not known\n")
    assert b'"type":"urn:penstock:problem:unavailable"' in problem
