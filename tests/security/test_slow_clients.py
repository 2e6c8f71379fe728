"""Clients that take their time, send too much, or are too many: they cost little, end after a bounded time, and others
are served.

The front end as it runs, under gunicorn as configured; only how long it waits and how many it takes is less, so that
tests end.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import httpx2
import pytest

from penstock.broker.store import Store
from penstock.config.limits import BODY_BYTES_MAX, MIB
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Invalid
from penstock.engine.validation import parse
from penstock.http.messages import bodies
from penstock.http.messages.presence import WatchableRequest
from tests.security.wire import connected, exchanged, request, rest, statuses, whole
from tests.support.frontends import FrontEnd

WAIT_S, CONNECTIONS_MAX = 1, 40
SLOW = 30  # connections that only trickle
HUGE = 100 * MIB
GROWTH_MAX = 3 * BODY_BYTES_MAX  # what one body costs that is read up to the limit, and some room
HEALTH = whole("GET /nowhere HTTP/1.1")
SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/runs",
    "query_string": b"",
    "headers": [(b"content-length", b"100")],
}


@pytest.fixture(scope="module")
def front_end(broker_settings: BrokerSettings) -> Iterator[FrontEnd]:
    one = FrontEnd(broker_settings, None, "--keep-alive", str(WAIT_S), "--worker-connections", str(CONNECTIONS_MAX))
    try:
        one.await_start()
        yield one
    finally:
        one.stop()


@pytest.fixture
async def url(front_end: FrontEnd, store: Store) -> str:
    await store.definitions.register(parse({"name": "slow", "steps": [{"id": "a", "task": "slow"}]}))
    return front_end.url


HEADS = {
    "nothing": b"",
    "an empty line": b"\r\n",
    "half a request line": b"GET /runs",
    "a head without its end": b"GET /runs HTTP/1.1\r\nHost: x\r\nX: y",
}


@pytest.mark.parametrize("what", HEADS)
def test_a_connection_that_brings_no_whole_head_is_closed(url: str, what: str) -> None:
    """On a new connection as on one that was used before."""
    assert [] == statuses(exchanged(url, HEADS[what]))
    assert [404] == statuses(exchanged(url, request("GET /nowhere HTTP/1.1") + HEADS[what]))


def test_a_head_that_trickles_is_cut_off_however_steadily_it_comes(url: str) -> None:
    with closing(connected(url)) as connection:
        connection.settimeout(0.05)
        sent = 0
        for byte in b"GET /nowhere HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 90:
            try:
                connection.sendall(bytes((byte,)))
                sent += 1
                if connection.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            raise AssertionError("it was heard to the end")
    assert sent


def test_others_are_served_beside_many_that_trickle(url: str) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(closing(connected(url))) for _ in range(SLOW)]
        for one in slow:
            one.sendall(HEADS["a head without its end"])
        assert [404] == statuses(exchanged(url, HEALTH))
        assert [b""] * SLOW == [rest(one) for one in slow]


def test_connections_over_the_limit_are_answered_503_and_closed(url: str) -> None:
    with ExitStack() as stack:
        many = [stack.enter_context(closing(connected(url))) for _ in range(CONNECTIONS_MAX + 10)]
        found = [rest(one) for one in many]
    refused = [answer for answer in found if answer]
    assert 10 == len(refused)
    assert {(503,)} == {tuple(statuses(answer)) for answer in refused}
    assert all(b"Retry-After: 1\r\n" in answer for answer in refused)
    assert [404] == statuses(exchanged(url, HEALTH))


def test_a_process_takes_fewer_connections_than_it_may_have_files(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.config import gunicorn

    assert 0 < gunicorn.worker_connections < max(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 2**20 + 1)
    for files, expected in ((1024, 896), (64, 32), (resource.RLIM_INFINITY, 2**20)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert expected == gunicorn._connections_max()


def test_a_request_may_wait_longer_than_a_head_may_take(url: str) -> None:
    with httpx2.Client(base_url=url, trust_env=False, timeout=30) as client:
        run_id = client.post("/runs", json={"workflow": "slow"}).json()["run_id"]
        answer = client.get(f"/runs/{run_id}", params={"wait_ms": WAIT_S * 2_000})
        assert (200, "running") == (answer.status_code, answer.json()["status"])


@pytest.mark.parametrize("ending", ["length", "chunks"])
async def test_a_body_that_ends_with_the_connection_starts_nothing(url: str, store: Store, ending: str) -> None:
    """Though what came of it is JSON as it should be."""
    before = await store.history.last_seq()
    body = b'{"workflow":"slow"}'
    framed = {
        "length": (b"Content-Length: 20\r\n\r\n", body),
        "chunks": (b"Transfer-Encoding: chunked\r\n\r\n13\r\n", body + b"\r\n"),
    }
    with closing(connected(url)) as connection:
        connection.sendall(b"POST /runs HTTP/1.1\r\nHost: x\r\n" + b"".join(framed[ending]))
        connection.shutdown(socket.SHUT_WR)
        assert 201 not in statuses(rest(connection))
    assert [404] == statuses(exchanged(url, HEALTH))
    assert before == await store.history.last_seq()


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"100")]], ids=["chunks", "length"])
async def test_what_came_before_the_connection_ended_is_no_body(headers: list[tuple[bytes, bytes]]) -> None:
    events: Iterator[dict[str, object]] = iter(
        [{"type": "http.request", "body": b'{"workflow":"slow"}', "more_body": True}, {"type": "http.disconnect"}]
    )

    async def receive() -> dict[str, object]:
        return next(events)

    with pytest.raises(Invalid, match="the body ended"):
        await bodies.read(WatchableRequest({**SCOPE, "headers": headers}, receive))


def test_a_client_that_closes_its_half_leaves_nothing_open(url: str) -> None:
    for head in (b"", HEALTH):
        with closing(connected(url)) as connection:
            connection.sendall(head)
            connection.shutdown(socket.SHUT_WR)
            assert statuses(rest(connection)) in ([], [404])


async def test_a_body_that_never_ends_is_given_up_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_S_MAX", 0.01)
    pieces = iter([b'{"workflow":'])

    async def receive() -> dict[str, object]:
        if (piece := next(pieces, None)) is None:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": piece, "more_body": True}

    with pytest.raises(Invalid, match=r"the body did not come within 0\.01 s"):
        await bodies.read(WatchableRequest(SCOPE, receive))


@pytest.mark.parametrize("framing", [f"Content-Length: {HUGE}", "Transfer-Encoding: chunked"])
async def test_a_huge_body_is_refused_long_before_it_has_come(
    url: str, store: Store, front_end: FrontEnd, framing: str
) -> None:
    """The most that is read of it is what a request may have; most of the time the client cannot even send that."""
    before, memory = await store.history.last_seq(), front_end.memory
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n" if "chunked" in framing else b" " * 65536
    sent = 0
    with closing(connected(url)) as connection, suppress(ConnectionError):
        connection.sendall(request("POST /runs HTTP/1.1", (framing,)))
        while sent < HUGE:
            connection.sendall(chunk)
            sent += 65536
    assert sent < HUGE
    assert front_end.memory - memory < GROWTH_MAX
    assert [404] == statuses(exchanged(url, HEALTH))
    assert before == await store.history.last_seq()


@pytest.mark.parametrize("target", ["GET /nowhere", "POST /v1/tasks/poll", "POST /v1/webhooks/nobody"])
def test_a_huge_body_that_nobody_asked_for_is_not_read(url: str, front_end: FrontEnd, target: str) -> None:
    """401 and 404 come before the body is looked at."""
    memory, sent = front_end.memory, 0
    with closing(connected(url)) as connection, suppress(ConnectionError):
        connection.sendall(request(f"{target} HTTP/1.1", (f"Content-Length: {HUGE}",)))
        while sent < HUGE:
            connection.sendall(b" " * 65536)
            sent += 65536
    assert sent < HUGE
    assert front_end.memory - memory < GROWTH_MAX


def test_a_client_that_waits_for_100_is_refused_without_its_body(url: str) -> None:
    head = request("POST /runs HTTP/1.1", ("Expect: 100-continue", f"Content-Length: {HUGE}"))
    with closing(connected(url)) as connection:
        connection.sendall(head)
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.sendall(b"x")
        assert [413] == statuses(rest(connection))
