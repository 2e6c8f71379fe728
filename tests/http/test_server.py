"""What depends on the server in front of the application."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import httpx2
import pytest

from penstock.broker.store import Store

MIB = 1 << 20


def test_a_run_is_started_and_read_over_one_connection(served: str, definitions: None) -> None:
    with closing(_connect(served)) as connection:
        for _ in range(3):
            answer = _ask(connection, b"POST /runs HTTP/1.1", b'{"workflow":"one"}')
            assert answer.startswith(b"HTTP/1.1 201 ")
            assert b"connection: close" not in answer.lower()


def test_a_wrong_method_is_405_with_allow(client: httpx2.Client) -> None:
    answer = client.get("/runs/bulk")
    assert 405 == answer.status_code
    assert "POST" in answer.headers["allow"]
    assert 405 == client.request("BREW", "/runs").status_code


def test_head_leaves_its_connection_fit_for_the_next_request(served: str, definitions: None) -> None:
    with closing(_connect(served)) as connection:
        for path, status in ((b"/openapi.json", 200), (b"/nowhere", 404), (b"/workflows", 200)):
            connection.sendall(b"HEAD %b HTTP/1.1\r\nHost: x\r\n\r\n" % path)
            head = connection.recv(65536)
            assert head.startswith(b"HTTP/1.1 %d " % status)
            assert head.endswith(b"\r\n\r\n")
            assert b"content-length: 0\r\n" not in head.lower()
        assert _ask(connection, b"POST /runs HTTP/1.1", b'{"workflow":"one"}').startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize("path", ["/workflows", "/runs", "/runs/bulk"])
async def test_ten_megabytes_are_413_and_nothing_is_stored(client: httpx2.Client, store: Store, path: str) -> None:
    before = await store.history.last_seq()
    whole = client.post(path, content=b'"' + b"x" * (10 * MIB) + b'"')
    assert (413, "text/plain; charset=utf-8") == (whole.status_code, whole.headers["content-type"])
    chunked = client.post(path, content=_chunks(10))
    assert 413 == chunked.status_code
    assert "8388608" in whole.text
    assert "8388608" in chunked.text
    assert before == await store.history.last_seq()


async def test_a_body_that_is_cut_short_starts_nothing(served: str, definitions: None, store: Store) -> None:
    before = await store.history.last_seq()
    with closing(_connect(served)) as connection:
        connection.sendall(b'POST /runs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"workflow":"one"}')
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65536)
    assert b" 201 " not in answer
    assert before == await store.history.last_seq()


PATHS = {
    "/workflows/a%2Fb": 404,
    "/workflows/a%0Ab": 400,
    "/workflows/a%00b": 400,
    "/workflows/%20": 400,
    "/workflows/%FF": 400,
    "/workflows/%": 400,
    "/runs/%2e%2e": 404,
    "/runs/" + "a" * 5000: 404,
    "/runs//cancel": 405,
    "/nowhere%0d%0aX: y": 404,
}


@pytest.mark.parametrize("path", PATHS)
def test_escaped_characters_in_a_path_do_no_harm(served: str, definitions: None, path: str) -> None:
    with closing(_connect(served)) as connection:
        answer = _ask(connection, b"GET " + path.replace(" ", "%20").encode() + b" HTTP/1.1")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"HTTP/1.1 %d " % PATHS[path] in head
    assert b"text/plain" in head
    assert all(line.isprintable() for line in body.decode().splitlines())


@pytest.mark.parametrize("target", [b"/runs/\xff", b"/runs?limit=\xff", b"/ru ns", b"*", b"http://[/runs"])
def test_a_target_that_is_none_is_refused_by_the_server(served: str, definitions: None, target: bytes) -> None:
    with closing(_connect(served)) as connection:
        answer = _ask(connection, b"GET " + target + b" HTTP/1.1")
    assert answer[9:10] == b"4"
    assert b"Traceback" not in answer


def test_a_header_that_is_no_text_is_refused(served: str, definitions: None) -> None:
    with closing(_connect(served)) as connection:
        answer = _ask(connection, b"POST /runs HTTP/1.1\r\nIdempotency-Key: \xff\xfe", b'{"workflow":"one"}')
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"Idempotency-Key" in answer


def test_a_client_that_waits_for_100_is_answered_at_once_that_its_body_is_too_large(
    served: str, definitions: None
) -> None:
    with closing(_connect(served)) as connection:
        connection.sendall(
            b"POST /runs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 10485760\r\n\r\n"
        )
        answer = connection.recv(65536)
        while b" 413 " not in answer:
            assert answer.startswith(b"HTTP/1.1 100 ")
            connection.sendall(b"x")
            answer = connection.recv(65536)
    assert b" 413 " in answer


def test_a_request_that_comes_while_another_waits_is_answered_behind_it(served: str, definitions: None) -> None:
    with closing(_connect(served)) as connection:
        started = _ask(connection, b"POST /runs HTTP/1.1", b'{"workflow":"one"}')
        run_id = started.partition(b'"run_id":"')[2][:32]
        for request in (b"GET /runs/%b?wait_ms=300", b"GET /nowhere/%b", b"GET /runs/%b"):
            connection.sendall(request % run_id + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        answers = b""
        while answers.count(b"HTTP/1.1") < 3:
            answers += connection.recv(65536)
    assert [b"200", b"404", b"200"] == [one[1:4] for one in answers.split(b"HTTP/1.1")[1:]]


def _chunks(mebibytes: int) -> Iterator[bytes]:
    for _ in range(mebibytes):
        yield b" " * MIB


def _connect(served: str) -> socket.socket:
    address = urlsplit(served)
    assert address.hostname
    assert address.port
    return socket.create_connection((address.hostname, address.port), timeout=10)


def _ask(connection: socket.socket, head: bytes, body: bytes = b"") -> bytes:
    """One answer, whole."""
    connection.sendall(head + b"\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    answer = b""
    while b"\r\n\r\n" not in answer:
        part = connection.recv(65536)
        assert part, answer
        answer += part
    length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(answer.partition(b"\r\n\r\n")[2]) < length:
        answer += connection.recv(65536)
    return answer
