"""The load's client against a server that answers from a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from load.client import Client, RefusedError, address
from load.connection import LostError, Pool

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CLOSING = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
BAD = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 5\r\n\r\nno: x"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
COMPLETED = b"event: workflow.completed\nid: 9\ndata: {}\n\n"


class Server:
    """It takes the next of `answers` for every request, and hangs up when there is none left."""

    def __init__(self, answers: list[bytes]) -> None:
        self.answers, self.connections = answers, 0
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while self.answers and (head := await _head(reader)):
            self.requests.append(head)
            writer.write(self.answers.pop(0))
        writer.close()


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


@asynccontextmanager
async def serving(*answers: bytes) -> AsyncIterator[tuple[Server, int]]:
    server = Server(list(answers))
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        yield server, listening.sockets[0].getsockname()[1]


async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with serving(OK, OK) as (server, port):
        pool = Pool("127.0.0.1", port, "secret")
        assert [200, 200] == [(await pool.request("GET", path)).status for path in ("/a", "/b")]
        assert 1 == server.connections
        assert [b"GET /a HTTP/1.1", b"GET /b HTTP/1.1"] == [head.split(b"\r\n")[0] for head in server.requests]
        assert b"\r\nAuthorization: Bearer secret\r\n" in server.requests[0]
        pool.close()


async def test_a_connection_that_the_server_closes_is_not_used_again() -> None:
    async with serving(CLOSING, OK) as (server, port):
        pool = Pool("127.0.0.1", port)
        assert [b"{}", b"{}"] == [(await pool.request("GET", path)).body for path in ("/a", "/b")]
        assert 2 == server.connections
        pool.close()


@pytest.mark.parametrize("answer", [OK[:-1], b"nonsense\r\n\r\n"])
async def test_a_broken_answer_is_a_lost_request(answer: bytes) -> None:
    async with serving(answer) as (_, port):
        with pytest.raises(LostError):
            await Pool("127.0.0.1", port).request("GET", "/a")


async def test_a_service_that_is_not_there_is_a_lost_request() -> None:
    async with serving() as (_, port):
        pass
    with pytest.raises(LostError, match="cannot be reached"):
        await Pool("127.0.0.1", port).request("GET", "/a")


async def test_an_error_answer_is_reported_with_its_text() -> None:
    async with serving(BAD) as (_, port):
        with pytest.raises(RefusedError, match="400 no: x"):
            await Client(f"http://127.0.0.1:{port}").start("w", b"1")


async def test_the_end_of_a_run_is_seen_before_its_stream_ends() -> None:
    async with serving(STREAM + b"%x\r\n%b\r\n" % (len(COMPLETED), COMPLETED)) as (server, port):
        server.answers.append(b"")  # keeps the connection open
        assert "workflow.completed" == await Client(f"http://127.0.0.1:{port}").ended("r")
        assert b"\r\nAccept: text/event-stream\r\n" in server.requests[0]


async def test_a_stream_that_ends_too_early_says_so() -> None:
    async with serving(STREAM + b"0\r\n\r\n") as (_, port):
        with pytest.raises(LostError, match="ended early"):
            await Client(f"http://127.0.0.1:{port}").ended("r")


@pytest.mark.parametrize("url", ["127.0.0.1:80", "https://127.0.0.1", "http://"])
def test_what_is_no_plain_http_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is no http:// address"):
        address(url)
