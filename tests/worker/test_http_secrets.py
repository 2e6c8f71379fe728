"""Secrets of http steps: where they come from, and that they are nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.config.settings import HttpTaskSettings
from penstock.worker.http_tasks.attempt import HttpAttempts, open_attempts
from penstock.worker.tasks.failures import NonRetriable, Retriable, RetryAfter, failure
from tests.support.web_server import WebServer, answer, web_server

SECRET = 'ge"heim-ü'


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with web_server(lambda _: answer()) as one:
        yield one


@pytest.fixture
async def attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpAttempts]:
    monkeypatch.setenv("PENSTOCK_SECRET_KEY", SECRET)
    monkeypatch.setenv("PENSTOCK_SECRET_EMPTY", "")
    monkeypatch.setenv("PENSTOCK_SECRET_LINES", "a\r\nX-Other: b")
    (tmp_path / "FILE").write_text("from a file\n")
    (tmp_path / "KEY").write_text("not this one")
    (tmp_path / "BYTES").write_bytes(b"\xff\n")
    (tmp_path / "FOLDER").mkdir()
    async with open_attempts(HttpTaskSettings(allow=("127.0.0.1",), secrets_dir=str(tmp_path))) as one:
        yield one


def with_header(server: WebServer, *parts: Any) -> dict[str, Any]:
    return {"url": server.url(), "headers": {"X": list(parts)}}


async def test_a_header_is_put_together_from_text_and_secrets(
    server: WebServer, attempts: HttpAttempts, tmp_path: Path
) -> None:
    await attempts.make(with_header(server, "Bearer ", {"secret": "KEY"}, "/", {"secret": "FILE"}), "t")
    (tmp_path / "FILE").write_text("another")  # a file that changed counts at once
    await attempts.make(with_header(server, {"secret": "FILE"}), "t")

    assert [f"Bearer {SECRET}/from a file", "another"] == [asked.headers["x"] for asked in server.asked]


async def test_text_that_looks_like_a_secret_is_text(server: WebServer, attempts: HttpAttempts) -> None:
    """It may have come from a run's input."""
    await attempts.make({"url": server.url(), "headers": {"X": "${{ secret.KEY }}"}}, "t")

    assert server.asked[0].headers["x"] == "${{ secret.KEY }}"


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"secret": "NONE"}, "secret NONE is unknown: its worker has neither PENSTOCK_SECRET_NONE nor such a file"),
        ({"secret": "EMPTY"}, "secret EMPTY is empty"),
        ({"secret": "LINES"}, "secret LINES holds a line break"),
        ({"secret": "BYTES"}, "secret BYTES cannot be read: its file is no UTF-8 text"),
        ({"secret": "FOLDER"}, "secret FOLDER cannot be read: Is a directory"),
        ({"secret": "../KEY"}, '"../KEY" is no name of a secret'),
        ({"secret": "/etc/passwd"}, "is no name of a secret"),
        ({"secret": ""}, "is no name of a secret"),
        ({"secret": 1}, "headers"),
        ({"secret": "KEY", "more": 1}, "headers"),
        (["a"], "headers"),
    ],
)
async def test_a_secret_that_cannot_be_had_fails_for_good_and_is_named(
    server: WebServer, attempts: HttpAttempts, part: Any, told: str
) -> None:
    with pytest.raises(NonRetriable) as caught:
        await attempts.make(with_header(server, part), "t")

    assert told in str(caught.value)
    assert server.connections == 0


@pytest.mark.parametrize("written", [SECRET.encode(), b'ge\\"heim-\xc3\xbc'])
async def test_an_answer_that_repeats_a_secret_is_kept_without_it(
    server: WebServer, attempts: HttpAttempts, written: bytes
) -> None:
    body = b'{"you": "' + written + b'"}'
    server.script = lambda _: (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-You: " + SECRET.encode()
        + b"\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
    )  # fmt: skip

    output = await attempts.make(with_header(server, {"secret": "KEY"}), "t")

    assert output["headers"]["x-you"] == "***"
    assert output["body"] == {"you": "***"}


@pytest.mark.parametrize(
    "said",
    [
        answer(400, SECRET.encode()),
        answer(500, SECRET.encode()),
        answer(429, SECRET.encode(), retry_after="1"),
        b"HTTP/1.1 302 X\r\nLocation: ftp://" + SECRET.encode() + b"/" + SECRET.encode() + b"\r\n\r\n",
        SECRET.encode() + b" no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + SECRET.encode() + b"\r\n\r\n",
    ],
)
async def test_no_failure_tells_a_secret(server: WebServer, attempts: HttpAttempts, said: bytes) -> None:
    server.script = lambda _: said

    with pytest.raises((NonRetriable, Retriable, RetryAfter)) as caught:
        await attempts.make(with_header(server, {"secret": "KEY"}), "t")

    told = failure(caught.value)
    for text in (told.error, told.traceback):
        assert "heim" not in text
