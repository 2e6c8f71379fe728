"""What the server makes of a connection: of the offer of another protocol, of bodies that nobody reads, of a request
that is malformed behind others, of the death of gunicorn."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trustme
from uvicorn.config import Config

from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings
from penstock.http.server import connection
from penstock.http.server.connection import ConnectionBounds, ConnectionState, HttpConnection
from tests.security.wire import connected, exchanged, request, rest, statuses, whole
from tests.support.frontends import FrontEnd

RUN = b'{"workflow":"one"}'
LENGTH = f"Content-Length: {len(RUN)}"
H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
ORPHAN_S_MAX = 10.0


@pytest.mark.parametrize("pieces", [1, 2])
async def test_a_request_that_offers_http_2_is_read_with_its_body_and_leaves_its_connection_open(
    served: str, definitions: None, store: Store, pieces: int
) -> None:
    """As Java's own client sends every request."""
    before = await store.history.last_seq()
    head = request("POST /runs HTTP/1.1", (*H2C, LENGTH))
    sent = [head + RUN + whole("GET /nowhere HTTP/1.1")] if pieces == 1 else [head, RUN + whole("GET /x HTTP/1.1")]
    assert [201, 404] == statuses(exchanged(served, *sent))
    assert before + 1 == await store.history.last_seq()


def test_a_method_that_http_does_not_define_is_read_with_its_body(served: str, definitions: None) -> None:
    brewing = request("BREW /runs HTTP/1.1", (LENGTH,), RUN)
    assert [405, 201] == statuses(exchanged(served, brewing + whole("POST /runs HTTP/1.1", RUN)))


def test_a_tunnel_is_refused(served: str) -> None:
    assert [400] == statuses(exchanged(served, request("CONNECT x:443 HTTP/1.1") + b"anything"))


def test_a_request_that_is_malformed_behind_others_is_refused_in_its_turn(served: str, definitions: None) -> None:
    """The one before is answered although the other is known to be malformed before that."""
    with httpx2.Client(base_url=served, trust_env=False) as client:
        run_id = client.post("/runs", content=RUN).json()["run_id"]
    waiting = request(f"GET /runs/{run_id}?wait_ms=300 HTTP/1.1")
    malformed = request("POST /runs HTTP/1.1", ("Transfer-Encoding: chunked",), b"xy\r\n")
    assert [200, 400] == statuses(exchanged(served, waiting + malformed))
    assert [200, 400] == statuses(exchanged(served, waiting + b"\0\1 garbage\r\n\r\n"))


def test_a_small_body_that_nobody_reads_is_skipped(served: str, definitions: None) -> None:
    """Though most of it comes after the answer."""
    with closing(connected(served)) as end:
        end.sendall(request("POST /nowhere HTTP/1.1", (LENGTH,), RUN[:1]))
        assert b"HTTP/1.1 404" == end.recv(12)
        end.sendall(RUN[1:] + whole("POST /runs HTTP/1.1", RUN))
        assert [201] == statuses(rest(end))


def test_a_field_without_an_end_is_refused_before_it_has_come(served: str) -> None:
    with closing(connected(served)) as end:
        end.sendall(b"GET /nowhere HTTP/1.1\r\nHost: x\r\nX: ")
        sent = 0
        try:
            while sent < 1 << 26:
                sent += end.send(b"y" * 65536)
        except ConnectionError:
            pass
        assert statuses(rest(end)) in ([431], [])  # it may be gone with the bytes that were not read
    assert sent < 1 << 26


@pytest.mark.parametrize("body", [b"", RUN[:1]])
async def test_a_body_that_does_not_come_is_refused_after_a_while(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application waits for its first byte, and so would do for ever."""
    monkeypatch.setattr(connection, "BODY_SILENT_S_MAX", 0.05)
    config = Config(_reading, http=HttpConnection, lifespan="off", log_config=None)
    state = ConnectionState(ConnectionBounds(connections=10, line_bytes=100, fields=10, field_bytes=100))
    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: HttpConnection(config, state, {}), "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(request("POST /runs HTTP/1.1", (LENGTH,), body))
        answers = await asyncio.wait_for(reader.read(), 10)
        writer.close()
    assert [400] == statuses(answers)
    assert b"no byte of the body came for 0.05 s" in answers


async def _reading(scope: Any, receive: Any, send: Any) -> None:
    """An application that reads a body to its end."""
    while (await receive()).get("more_body"):
        pass


def test_a_process_ends_with_its_gunicorn(broker_settings: BrokerSettings) -> None:
    """Else it would answer for ever on a port that nobody else could take."""
    front_end = FrontEnd(broker_settings, None)
    front_end.await_start()
    os.kill(front_end.pid, signal.SIGKILL)
    deadline = time.monotonic() + ORPHAN_S_MAX
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", front_end.port)) != 0:
                break
        time.sleep(0.05)
    else:
        raise AssertionError("it still answers")


def test_gunicorn_ends_tls_if_it_is_given_a_certificate(broker_settings: BrokerSettings, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "chain")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    front_end = FrontEnd(
        broker_settings, None, "--certfile", str(tmp_path / "chain"), "--keyfile", str(tmp_path / "key")
    )
    try:
        with httpx2.Client(verify=context, trust_env=False, timeout=20) as client:
            deadline = time.monotonic() + ORPHAN_S_MAX
            while True:
                try:
                    answer = client.get(f"https://127.0.0.1:{front_end.port}/nowhere")
                    break
                except httpx2.TransportError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
        assert 404 == answer.status_code
    finally:
        front_end.stop()
