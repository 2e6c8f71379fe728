"""What an http step sends, and what becomes of the answers: status, body, redirects, time."""

from __future__ import annotations

import base64
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpcore2
import orjson
import pytest
import trustme

from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.config.settings import HttpTaskSettings
from penstock.worker.http_tasks.addresses import Address
from penstock.worker.http_tasks.answers import retry_after_s
from penstock.worker.http_tasks.attempt import HttpAttempts, open_attempts
from penstock.worker.tasks.failures import NonRetriable, Retriable, RetryAfter
from tests.support.web_server import Asked, WebServer, answer, web_server

DATE = "Sun, 22 Nov 2026 06:00:00 GMT"
LOCAL = HttpTaskSettings(allow=("127.0.0.1",))


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with web_server(lambda _: answer(200, b'{"a": 1}', content_type="application/json")) as one:
        yield one


@pytest.fixture
async def attempts() -> AsyncIterator[HttpAttempts]:
    async with open_attempts(LOCAL) as one:
        yield one


async def failing(attempts: HttpAttempts, task: dict[str, Any]) -> Exception:
    with pytest.raises((NonRetriable, Retriable, RetryAfter)) as caught:
        await attempts.make(task, "run.step")
    return caught.value


async def test_the_output_is_status_headers_and_body(server: WebServer, attempts: HttpAttempts) -> None:
    output = await attempts.make({"url": server.url("/a?b=c#d")}, "run.step")

    assert output == {
        "status": 200,
        "headers": {"content-length": "8", "content-type": "application/json"},
        "body": {"a": 1},
    }
    (asked,) = server.asked
    assert ("GET", "/a?b=c", b"") == (asked.method, asked.target, asked.body)
    assert asked.headers["host"] == f"127.0.0.1:{server.port}"
    assert asked.headers["idempotency-key"] == "run.step"
    assert asked.headers["user-agent"].startswith("penstock/")
    assert "content-length" not in asked.headers


@pytest.mark.parametrize(
    ("given", "sent", "content_type"),
    [
        ({"body": {"a": ["é", None]}}, '{"a":["é",null]}', "application/json"),
        ({"body": "text"}, '"text"', "application/json"),
        ({"body": "a=1", "headers": {"Content-Type": "application/x-www-form-urlencoded"}}, "a=1",
         "application/x-www-form-urlencoded"),
        ({"body": [1], "headers": {"Content-Type": "application/vnd.x+json"}}, "[1]", "application/vnd.x+json"),
        ({"body": None}, "", None),
        ({"body": 0}, "0", "application/json"),
    ],
)  # fmt: skip
async def test_a_body_is_json_unless_it_is_text_with_a_type_of_its_own(
    server: WebServer, attempts: HttpAttempts, given: dict[str, Any], sent: str, content_type: str | None
) -> None:
    await attempts.make({"url": server.url(), "method": "POST", **given}, "run.step")

    (asked,) = server.asked
    assert sent == asked.body.decode()
    assert content_type == asked.headers.get("content-type")
    assert asked.headers["content-length"] == str(len(sent.encode()))


async def test_a_header_of_the_steps_own_goes_before_a_default_one(server: WebServer, attempts: HttpAttempts) -> None:
    headers = {"Idempotency-Key": "mine", "USER-AGENT": "me", "Accept": "text/csv", "X-Empty": " "}
    await attempts.make({"url": server.url(), "headers": headers}, "run.step")

    (asked,) = server.asked
    assert ("mine", "me", "text/csv", "") == tuple(
        asked.headers[name] for name in ("idempotency-key", "user-agent", "accept", "x-empty")
    )


@pytest.mark.parametrize(
    ("task", "told"),
    [
        (None, "the request cannot be read"),
        ({}, "url"),
        ({"url": 1}, "url"),
        ({"url": "U", "more": 1}, "more"),
        ({"url": "U", "method": "get"}, 'method must be one of GET HEAD POST PUT PATCH DELETE OPTIONS, not "get"'),
        ({"url": "U", "method": "TRACE"}, "method must be one of"),
        ({"url": "U", "expect": [99]}, "expect: 99 is no status"),
        ({"url": "U", "expect": ["2x"]}, 'expect: "2x" is neither a status nor "2xx"'),
        ({"url": "U", "expect": [True]}, "expect"),
        ({"url": "U", "timeout": "soon"}, "timeout"),
        ({"url": "U", "timeout": "0s"}, "timeout must be longer than 0s"),
        ({"url": "U", "headers": {"a b": ""}}, 'headers: "a b" is no name of a header'),
        ({"url": "U", "headers": {"": ""}}, 'headers: "" is no name of a header'),
        ({"url": "U", "headers": {"Host": "x"}}, 'headers: "Host" is set by who sends the request'),
        ({"url": "U", "headers": {"Content-Length": "1"}}, 'headers: "Content-Length" is set by'),
        ({"url": "U", "headers": {"Transfer-Encoding": "chunked"}}, 'headers: "Transfer-Encoding" is set by'),
        ({"url": "U", "headers": {"a": "x\r\nb: y"}}, 'headers: "a" holds a line break'),
        ({"url": "U", "headers": {"a": "x\x00"}}, 'headers: "a" holds a line break or another control'),
        ({"url": "U", "headers": {"a": 1}}, "headers"),
        ({"url": "U", "headers": {"a": "1", "A": "2"}}, 'headers: "A" is there twice'),
        ({"url": "http://x/" + "y" * 9000}, "the url has 9009 characters, 8192 is the most"),
        ({"url": "http://u:geheim@x/"}, "the url must not hold a user or a password"),
        ({"url": "ftp://x/"}, 'the url must begin with http:// or https:// and a host, not "ftp://x/"'),
    ],
)
async def test_a_request_that_cannot_be_made_fails_for_good_and_names_the_field(
    server: WebServer, attempts: HttpAttempts, task: Any, told: str
) -> None:
    if task and task.get("url") == "U":
        task["url"] = server.url()

    error = await failing(attempts, task)

    assert isinstance(error, NonRetriable)
    assert told in str(error)
    assert "geheim" not in str(error)
    assert server.connections == 0


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/json", b'{"a": [1.5, null]}', {"a": [1.5, None]}),
        ("application/problem+json; charset=utf-8", b"[]", []),
        ("application/json", b"{broken", "{broken"),
        ("application/json", b"\xff", {"base64": "/w=="}),
        ("text/plain", "grüß".encode(), "grüß"),
        ("text/plain; charset=latin-1", "grüß".encode("latin-1"), "grüß"),
        ("text/plain; charset=nonsense", b"x", {"base64": "eA=="}),
        ("text/html", b"\xff\xfe", {"base64": "//4="}),
        ("application/xml", b"<a/>", "<a/>"),
        ("image/svg+xml", b"<svg/>", "<svg/>"),
        ("application/octet-stream", b"text all the same", {"base64": base64.b64encode(b"text all the same").decode()}),
        ("image/png", b"\x89PNG\x00", {"base64": "iVBORwA="}),
        (None, b"plain", "plain"),
        (None, b"\x80", {"base64": "gA=="}),
        ("application/json", b"", None),
    ],
)
async def test_a_body_becomes_json_text_or_base64(
    server: WebServer, attempts: HttpAttempts, content_type: str | None, body: bytes, expected: Any
) -> None:
    headers = {} if content_type is None else {"content_type": content_type}
    server.script = lambda _: answer(200, body, **headers)

    output = await attempts.make({"url": server.url()}, "run.step")

    assert expected == output["body"]
    assert orjson.dumps(output)


async def test_fields_that_come_several_times_are_joined_and_cookies_are_a_list(
    server: WebServer, attempts: HttpAttempts
) -> None:
    server.script = lambda _: (
        b"HTTP/1.1 200 OK\r\nVary: a\r\nvary: b\r\nSet-Cookie: x=1\r\nSet-Cookie: y=2, z\r\nContent-Length: 0\r\n\r\n"
    )

    first = await attempts.make({"url": server.url()}, "run.step")
    await attempts.make({"url": server.url()}, "run.step")

    assert first["headers"] == {"vary": "a, b", "set-cookie": ["x=1", "y=2, z"], "content-length": "0"}
    assert "cookie" not in server.asked[1].headers  # nothing is kept from one run to another


async def test_packed_bodies_are_unpacked_and_a_bomb_is_not(server: WebServer, attempts: HttpAttempts) -> None:
    def packed(body: bytes, how: str = "gzip") -> dict[str, Any]:
        server.script = lambda _: answer(200, body, content_type="text/plain", content_encoding=how)
        return {"url": server.url()}

    assert "two files" == (await attempts.make(packed(gzip.compress(b"two ") + gzip.compress(b"files")), "t"))["body"]
    assert (await attempts.make(packed(b""), "t"))["body"] is None
    other = zlib.compress(b"x")
    assert (await attempts.make(packed(other, "deflate"), "t"))["body"] == {"base64": base64.b64encode(other).decode()}
    assert "ends too early" in str(await failing(attempts, packed(gzip.compress(b"x" * 100)[:-6])))
    assert isinstance(await failing(attempts, packed(b"no gzip")), Retriable)
    bomb = await failing(attempts, packed(gzip.compress(bytes(200 * 1024 * 1024), 9)))
    assert isinstance(bomb, NonRetriable)
    assert f"has more than {PAYLOAD_BYTES_MAX} bytes" in str(bomb)


@pytest.mark.parametrize("length_told", [True, False])
async def test_an_answer_over_the_limit_fails_for_good(
    server: WebServer, attempts: HttpAttempts, length_told: bool
) -> None:
    def script(asked: Asked) -> bytes:
        body = b"x" * (PAYLOAD_BYTES_MAX + (asked.target == "/over"))
        return answer(200, body) if length_told else b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body

    server.script = script

    assert len((await attempts.make({"url": server.url("/fits")}, "t"))["body"]) == PAYLOAD_BYTES_MAX
    error = await failing(attempts, {"url": server.url("/over")})

    assert isinstance(error, NonRetriable)
    assert f"has more than {PAYLOAD_BYTES_MAX} bytes" in str(error)


@pytest.mark.parametrize(
    ("status", "expect", "kind"),
    [
        (200, None, None),
        (299, None, None),
        (404, [404], None),
        (404, ["4xx", 500], None),
        (500, ["4xx", 500], None),
        (503, ["5xx"], None),
        (304, [304], None),
        (302, [302], None),
        (302, None, NonRetriable),  # without a Location
        (200, [201], NonRetriable),
        (304, None, NonRetriable),
        (400, None, NonRetriable),
        (401, None, NonRetriable),
        (404, None, NonRetriable),
        (408, None, Retriable),
        (425, None, NonRetriable),
        (429, None, Retriable),
        (500, None, Retriable),
        (501, None, Retriable),
        (599, None, Retriable),
        (500, [404], Retriable),
    ],
)
async def test_a_status_says_what_becomes_of_the_attempt(
    server: WebServer, attempts: HttpAttempts, status: int, expect: list[Any] | None, kind: type[Exception] | None
) -> None:
    server.script = lambda _: answer(status, b"" if status == 304 else b"no\nway", content_type="text/plain")
    task = {"url": server.url("/x?key=geheim"), **({"expect": expect} if expect else {})}
    if kind is None:
        assert status == (await attempts.make(task, "t"))["status"]
        return

    error = await failing(attempts, task)

    assert type(error) is kind
    assert f"GET {server.url('/x')} answered {status}" in str(error)
    assert (r"no\nway" in str(error)) is (status != 304)
    assert "geheim" not in str(error)


@pytest.mark.parametrize(
    ("value", "delay_s"),
    [
        ("0", 0.0),
        ("120", 120.0),
        ("99999999999999999999", 86_400.0),
        ("Sun, 22 Nov 2026 06:01:30 GMT", 90.0),
        ("Sun, 22 Nov 2026 05:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("٣", None),
        ("", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_by_the_servers_clock(value: str, delay_s: float | None) -> None:
    assert delay_s == retry_after_s(value, DATE)


@pytest.mark.parametrize("status", [408, 429, 503])
async def test_a_server_may_say_when_to_come_again(server: WebServer, attempts: HttpAttempts, status: int) -> None:
    server.script = lambda _: answer(status, retry_after="7")

    error = await failing(attempts, {"url": server.url()})

    assert isinstance(error, RetryAfter)
    assert error.delay_s == 7.0


async def test_retry_after_of_a_refusal_for_good_is_none(server: WebServer, attempts: HttpAttempts) -> None:
    server.script = lambda _: answer(403, retry_after="7")

    assert isinstance(await failing(attempts, {"url": server.url()}), NonRetriable)


async def test_no_answer_in_time_may_be_tried_again(server: WebServer, attempts: HttpAttempts) -> None:
    server.script = lambda _: None

    error = await failing(attempts, {"url": server.url("/slow"), "timeout": "50ms"})

    assert isinstance(error, Retriable)
    assert str(error) == f"GET {server.url('/slow')} was not answered within 50ms"


async def test_a_body_that_stops_in_the_middle_may_be_tried_again(server: WebServer, attempts: HttpAttempts) -> None:
    server.script = lambda _: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"

    error = await failing(attempts, {"url": server.url()})

    assert isinstance(error, Retriable)
    assert "broke off" in str(error)


@pytest.mark.parametrize("said", [b"", b"no HTTP at all\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 40_000])
async def test_what_is_no_answer_may_be_tried_again(server: WebServer, attempts: HttpAttempts, said: bytes) -> None:
    server.script = lambda _: said

    error = await failing(attempts, {"url": server.url()})

    assert isinstance(error, Retriable)
    assert "got no answer" in str(error)


async def test_nobody_there_may_be_tried_again(server: WebServer, attempts: HttpAttempts) -> None:
    async with web_server(lambda _: answer()) as gone:
        url = gone.url()

    error = await failing(attempts, {"url": url})

    assert isinstance(error, Retriable)
    assert str(error) == f"GET {url} got no answer: Connection refused"


async def test_a_server_without_a_certificate_gets_nothing(server: WebServer, attempts: HttpAttempts) -> None:
    error = await failing(attempts, {"url": server.url().replace("http:", "https:"), "timeout": "500ms"})

    assert isinstance(error, Retriable)
    assert server.asked == []


async def test_a_certificate_is_checked_for_the_name_and_not_for_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setattr(httpcore2, "default_ssl_context", httpcore2.default_ssl_context.__wrapped__)  # see conftest.py
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("right.example").configure_cert(tls)

    async def resolve(host: str, port: int) -> Sequence[Address]:
        return [ip_address("127.0.0.1")]

    async with web_server(lambda _: answer(), tls=tls) as server, open_attempts(LOCAL, resolve) as attempts:
        url = server.url(host="right.example").replace("http:", "https:")
        assert (await attempts.make({"url": url}, "t"))["status"] == 200
        wrong = await failing(attempts, {"url": url.replace("right", "wrong")})
        bare = await failing(attempts, {"url": url.replace("right.example", "127.0.0.1")})

    for error in (wrong, bare):
        assert isinstance(error, Retriable)
        assert "certificate verify failed" in str(error)
    assert len(server.asked) == 1
