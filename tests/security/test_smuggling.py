"""Where a request ends is beyond doubt, or it is refused: nothing in a body is ever taken for a request of its own.

The front end as it runs, under gunicorn as configured. A proxy in front may see the end of a request elsewhere; so what
two readers could read in two ways is answered with an error, once, and the connection is closed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings
from penstock.engine.validation import parse
from tests.security.wire import exchanged, request, statuses, whole
from tests.support.frontends import FrontEnd, front_ends

RUN = b'{"workflow":"smuggled"}'
HIDDEN = whole("POST /runs HTTP/1.1", RUN)  # would start a run, were it read as a request
CHUNKED = b"17\r\n" + RUN + b"\r\n0\r\n\r\n"
FIELD_BYTES_MAX, FIELDS_MAX = 8190, 100


@pytest.fixture(scope="module")
def front_end(broker_settings: BrokerSettings) -> Iterator[FrontEnd]:
    with front_ends(broker_settings, 1, "br1dge") as (one,):
        yield one


@pytest.fixture
async def url(front_end: FrontEnd, store: Store) -> str:
    await store.definitions.register(parse({"name": "smuggled", "steps": [{"id": "a", "task": "smuggled"}]}))
    return front_end.url


def post(*headers: str, body: bytes = RUN) -> bytes:
    return request("POST /runs HTTP/1.1", headers, body)


LENGTH, CHUNKS = f"Content-Length: {len(RUN)}", "Transfer-Encoding: chunked"

# Each would be one thing to one reader and another to the next.
AMBIGUOUS = {
    "length and chunks": post(LENGTH, CHUNKS, body=CHUNKED),
    "chunks and length": post(CHUNKS, "Content-Length: 4", body=b"0\r\n\r\n"),
    "two lengths": post(LENGTH, "Content-Length: 0"),
    "the same length twice": post(LENGTH, LENGTH),
    "lengths in a list": post(f"Content-Length: {len(RUN)}, {len(RUN)}"),
    "length with a sign": post(f"Content-Length: +{len(RUN)}"),
    "negative length": post("Content-Length: -1"),
    "length in hex": post("Content-Length: 0x17"),
    "length with an underscore": post("Content-Length: 2_3"),
    "empty length": post("Content-Length:"),
    "length in other digits": post("Content-Length: \xb2\xb3"),
    "chunked twice": post("Transfer-Encoding: chunked, chunked", body=CHUNKED),
    "chunked in two fields": post(CHUNKS, CHUNKS, body=CHUNKED),
    "identity": post("Transfer-Encoding: identity"),
    "chunked is not last": post("Transfer-Encoding: chunked, gzip", body=CHUNKED),
    "gzip only": post("Transfer-Encoding: gzip", LENGTH),
    "unknown coding": post("Transfer-Encoding: xchunked", body=CHUNKED),
    "quoted coding": post('Transfer-Encoding: "chunked"', body=CHUNKED),
    "coding after a vertical tab": post("Transfer-Encoding: \x0bchunked", body=CHUNKED),
    "space before the colon": post("Transfer-Encoding : chunked", body=CHUNKED),
    "tab before the colon": post("Content-Length\t: 0", CHUNKS, body=CHUNKED),
    "folded line": post("X: y", " Transfer-Encoding: chunked", LENGTH),
    "folded value": post("Transfer-Encoding:", "\tchunked", body=CHUNKED),
    "bare LF between fields": post(f"X: y\nContent-Length: {len(RUN)}"),
    "bare LF at every end": request("POST /runs HTTP/1.1", (LENGTH,), RUN, end="\n"),
    "bare CR in a value": post("X: y\rTransfer-Encoding: chunked", LENGTH),
    "NUL in a value": post("X: y\0z", LENGTH),
    "NUL in a name": post("Content-\0Length: 0"),
    "field without a colon": post("Content-Length", LENGTH),
    "field without a name": post(": 0", LENGTH),
    "two hosts": post("Host: y", LENGTH),
    "chunked in HTTP/1.0": request("POST /runs HTTP/1.0", (CHUNKS,), CHUNKED),
    "size that is no number": post(CHUNKS, body=b"xy\r\n" + CHUNKED),
    "size with a sign": post(CHUNKS, body=b"+17\r\n" + RUN + b"\r\n0\r\n\r\n"),
    "size with 0x": post(CHUNKS, body=b"0x17\r\n" + RUN + b"\r\n0\r\n\r\n"),
    "size with spaces": post(CHUNKS, body=b" 17 \r\n" + RUN + b"\r\n0\r\n\r\n"),
    "size with a bare LF": post(CHUNKS, body=b"17\n" + RUN + b"\r\n0\r\n\r\n"),
    "no size": post(CHUNKS, body=b"\r\n" + RUN + b"\r\n0\r\n\r\n"),
    "chunk longer than its size": post(CHUNKS, body=b"5\r\n" + RUN + b"\r\n0\r\n\r\n"),
    "extension with a bare CR": post(CHUNKS, body=b"17;a\rb\r\n" + RUN + b"\r\n0\r\n\r\n"),
    "length among the trailers": post(CHUNKS, body=b"17\r\n" + RUN + b"\r\n0\r\nContent-Length: 0\r\n\r\n"),
    "token among the trailers": post(CHUNKS, body=b"17\r\n" + RUN + b"\r\n0\r\nAuthorization: Bearer x\r\n\r\n"),
    "HTTP/0.9": b"POST /runs\r\n\r\n",
    "HTTP/1.2": request("POST /runs HTTP/1.2", (LENGTH,), RUN),
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "spaces in the target": request("POST /runs /x HTTP/1.1", (LENGTH,), RUN),
    "tab in the request line": request("POST\t/runs HTTP/1.1", (LENGTH,), RUN),
    "method in small letters": request("post /runs HTTP/1.1", (LENGTH,), RUN),
    "too long a line": request(f"POST /runs?{'x' * 9000} HTTP/1.1", (LENGTH,), RUN),
    "too long a field": post(f"X: {'x' * FIELD_BYTES_MAX}", LENGTH),
    "too many fields": post(*(f"X-{number}: y" for number in range(FIELDS_MAX)), LENGTH),
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00" + bytes(range(256)) + b"\r\n\r\n",
}
TOLD = {
    "too long a line": 414,
    "too long a field": 431,
    "too many fields": 431,
    "unknown coding": 501,
    "quoted coding": 501,
}


@pytest.mark.parametrize("what", AMBIGUOUS)
async def test_what_can_be_read_in_two_ways_is_refused_once_and_closes(url: str, store: Store, what: str) -> None:
    before = await store.history.last_seq()
    answer = exchanged(url, AMBIGUOUS[what] + HIDDEN)
    found = statuses(answer)
    assert [TOLD.get(what, found[0])] == found, answer
    assert found[0] in (400, 414, 431, 501)
    assert b"\r\nconnection: close\r\n" in answer.lower()
    assert before == await store.history.last_seq()


async def test_what_is_hidden_in_these_tests_would_start_a_run(url: str, store: Store) -> None:
    before = await store.history.last_seq()
    assert [201] == statuses(exchanged(url, HIDDEN))
    assert before + 1 == await store.history.last_seq()


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "DELETE", "BREW"])
async def test_a_body_that_nobody_reads_is_no_request(url: str, store: Store, method: str) -> None:
    before = await store.history.last_seq()
    asked = request(f"{method} /runs/{'0' * 32} HTTP/1.1", (f"Content-Length: {len(HIDDEN)}",), HIDDEN)
    assert len(statuses(exchanged(url, asked + whole("GET /nowhere HTTP/1.1")))) in (1, 2)
    assert before == await store.history.last_seq()


async def test_a_body_in_chunks_ends_with_its_last_chunk(url: str, store: Store) -> None:
    before = await store.history.last_seq()
    body = b"5;a=b\r\n" + RUN[:5] + b"\r\n12\r\n" + RUN[5:] + b"\r\n0\r\nX-Trailer: y\r\n\r\n"
    assert [201, 404] == statuses(exchanged(url, post(CHUNKS, body=body) + whole("GET /nowhere HTTP/1.1")))
    assert before + 1 == await store.history.last_seq()


async def test_requests_that_come_at_once_are_answered_in_their_order(url: str) -> None:
    three = (
        request("GET /nowhere HTTP/1.1")
        + request("GET /runs/bulk HTTP/1.1")
        + whole("GET /workflows/smuggled HTTP/1.1")
    )
    assert [404, 405, 200] == statuses(exchanged(url, three))


async def test_garbage_behind_a_request_is_refused_on_its_own(url: str) -> None:
    assert [404, 400] == statuses(exchanged(url, request("GET /nowhere HTTP/1.1") + b"\0\1\2 garbage\r\n\r\n"))


@pytest.mark.parametrize(
    "target",
    ["//v1/tasks/poll", "///v1/tasks/poll", "v1/tasks/poll?x=://", "http://x/v1/tasks/poll", "x://v1/tasks/poll"],
)
async def test_no_other_spelling_of_a_path_leads_to_the_bridge(url: str, target: str) -> None:
    body = b'{"task_types":["t"],"max_tasks":1,"timeout_ms":0}'
    assert [404] == statuses(exchanged(url, whole(f"POST {target} HTTP/1.1", body)))
    assert [401] == statuses(exchanged(url, whole("POST /v1/tasks/poll HTTP/1.1", body)))
    assert [200] == statuses(
        exchanged(url, whole("POST /v1/tasks/poll HTTP/1.1", body, "Authorization: Bearer br1dge"))
    )


@pytest.mark.parametrize("target", ["//runs", "runs?x=://", "//health", "//metrics", "*", "x", "x:443"])
async def test_a_target_that_is_no_path_is_no_resource(url: str, target: str) -> None:
    assert statuses(exchanged(url, whole(f"GET {target} HTTP/1.1"))) in ([400], [404])


async def test_what_one_request_leaves_does_not_reach_the_next(url: str) -> None:
    """Headers of an earlier request on the connection count for it alone."""
    poll = b'{"task_types":["t"],"max_tasks":1,"timeout_ms":0}'
    first = request(
        "POST /v1/tasks/poll HTTP/1.1", ("Authorization: Bearer br1dge", f"Content-Length: {len(poll)}"), poll
    )
    assert [200, 401] == statuses(exchanged(url, first + whole("POST /v1/tasks/poll HTTP/1.1", poll)))


WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
H2C = ("Connection: Upgrade, HTTP2-Settings, close", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")


@pytest.mark.parametrize("path", ["/runs", "/v1/tasks/poll", "/v1/workers/connect", "/health", "/nowhere"])
async def test_no_upgrade_leads_past_the_tokens(url: str, path: str) -> None:
    """A WebSocket is refused everywhere; the offer of HTTP/2 is overlooked, so that the request is one like any
    other."""
    assert [403] == statuses(exchanged(url, request(f"GET {path} HTTP/1.1", WEBSOCKET)))
    expected = statuses(exchanged(url, whole(f"GET {path} HTTP/1.1")))
    assert expected == statuses(exchanged(url, request(f"GET {path} HTTP/1.1", H2C)))
