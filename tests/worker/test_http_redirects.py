"""Redirects: each hop is checked like the first, and what is meant for one host goes to no other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from ipaddress import ip_address
from typing import Any

import pytest

from penstock.config.settings import HttpTaskSettings
from penstock.worker.http_tasks.addresses import Address
from penstock.worker.http_tasks.attempt import HttpAttempts, open_attempts
from penstock.worker.tasks.failures import NonRetriable
from tests.support.web_server import Asked, WebServer, answer, web_server

HOSTS = {"a.example": "127.0.0.1", "b.example": "127.0.0.1", "metadata.example": "169.254.169.254"}


async def resolve(host: str, port: int) -> Sequence[Address]:
    return [ip_address(HOSTS[host])]


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with web_server(lambda _: answer()) as one:
        yield one


@pytest.fixture
async def attempts(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpAttempts]:
    monkeypatch.setenv("PENSTOCK_SECRET_KEY", "geheim")
    async with open_attempts(HttpTaskSettings(allow=("127.0.0.1",)), resolve) as one:
        yield one


def to(*hops: tuple[int, str]) -> Any:
    """Each path leads to the next hop: `/` to the first, `/1` to the second; after the last, 200."""

    def script(asked: Asked) -> bytes:
        number = int(asked.target.strip("/") or 0)
        status, location = hops[number] if number < len(hops) else (200, "")
        return answer(status, b"there" if status == 200 else b"", **({"location": location} if location else {}))

    return script


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "//169.254.169.254/",
        "http://[::ffff:169.254.169.254]/",
        "http://2852039166/",
        "http://metadata.example/",
        "http://10.0.0.1/",
        "file:///etc/passwd",
        "ftp://a.example/",
        "gopher://a.example/",
        "http://u:p@a.example/",
        "http://a.example:99999/",
        "http://[::1",
        "javascript:alert(1)",
    ],
)
async def test_no_redirect_leads_where_the_first_request_may_not_go(
    server: WebServer, attempts: HttpAttempts, location: str
) -> None:
    server.script = to((302, location))

    if location == "http://2852039166/":  # an address to the system's resolver only
        HOSTS["2852039166"] = "169.254.169.254"
    with pytest.raises(NonRetriable) as caught:
        await attempts.make({"url": server.url(host="a.example")}, "t")

    assert "may not be reached" in str(caught.value) or "was redirected to" in str(caught.value)
    assert len(server.asked) == 1


async def test_ten_redirects_are_followed_and_no_eleventh(server: WebServer, attempts: HttpAttempts) -> None:
    server.script = to(*((302, f"/{n}") for n in range(1, 11)))
    assert (await attempts.make({"url": server.url()}, "t"))["body"] == "there"
    assert len(server.asked) == 11

    server.script = to(*((302, f"/{n}") for n in range(1, 12)))
    with pytest.raises(NonRetriable, match="was redirected more than 10 times"):
        await attempts.make({"url": server.url()}, "t")
    assert len(server.asked) == 22


@pytest.mark.parametrize(
    ("status", "method", "then", "body_kept"),
    [
        (301, "POST", "GET", False),
        (302, "POST", "GET", False),
        (303, "POST", "GET", False),
        (303, "PUT", "GET", False),
        (302, "PUT", "PUT", True),
        (307, "POST", "POST", True),
        (308, "PATCH", "PATCH", True),
        (303, "HEAD", "HEAD", False),
    ],
)
async def test_method_and_body_after_a_redirect(
    server: WebServer, attempts: HttpAttempts, status: int, method: str, then: str, body_kept: bool
) -> None:
    def script(asked: Asked) -> bytes:
        return answer(status, location="/there") if asked.target == "/" else answer()

    server.script = script
    task = {"url": server.url(), "method": method, **({} if method == "HEAD" else {"body": {"a": 1}})}

    await attempts.make(task, "t")

    _, second = server.asked
    assert (then, b'{"a":1}' if body_kept else b"") == (second.method, second.body)
    assert ("content-type" in second.headers) is body_kept


@pytest.mark.parametrize(
    ("host", "other_port", "kept"),
    [("a.example", False, True), ("b.example", False, False), ("a.example", True, False)],
)
async def test_credentials_and_secrets_go_to_no_other_place(
    server: WebServer, attempts: HttpAttempts, host: str, other_port: bool, kept: bool
) -> None:
    async with web_server(lambda _: answer()) as other:
        there = (other if other_port else server).url("/there", host)
        server.script = lambda asked: answer(307, location=there) if asked.target == "/" else answer()
        headers = {
            "Authorization": ["Bearer ", {"secret": "KEY"}],
            "Cookie": "a=1",
            "X-Api-Key": [{"secret": "KEY"}],
            "X-Plain": "here",
        }
        await attempts.make({"url": server.url(host="a.example"), "headers": headers}, "t")

    first, second = [*server.asked, *other.asked]
    assert "Bearer geheim" == first.headers["authorization"]
    assert "here" == second.headers["x-plain"]
    assert "t" == second.headers["idempotency-key"]
    for name in ("authorization", "cookie", "x-api-key"):
        assert (name in second.headers) is kept


@pytest.mark.parametrize("expect", [302, "3xx"])
async def test_a_redirect_that_is_expected_is_the_answer(
    server: WebServer, attempts: HttpAttempts, expect: int | str
) -> None:
    server.script = to((302, "/1"))

    output = await attempts.make({"url": server.url(), "expect": [expect]}, "t")

    assert (302, "/1") == (output["status"], output["headers"]["location"])
