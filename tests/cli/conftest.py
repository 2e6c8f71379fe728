"""A stand-in for the service that answers from a script, and a way to call the command as a shell would."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from penstock.cli.main import call


class Answer(NamedTuple):
    """`body` shorter than `length` means that the connection breaks there."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})
    length: int | None = None


class Request(NamedTuple):
    line: str
    headers: dict[str, str]
    body: bytes


class Service(ThreadingHTTPServer):
    """Lives for one test. The last answer of a route is given again and again."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, list[Answer]] = {}
        self.requests: list[Request] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def on(self, line: str, *answers: object) -> None:
        """Answer `line` (`GET /runs`) with these in turn: an Answer, or what becomes JSON."""
        self.answers[line] = [a if isinstance(a, Answer) else Answer(json.dumps(a).encode()) for a in answers]

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # the command has ended before its answer
            super().handle_error(request, client_address)

    def bodies(self, line: str) -> list[object]:
        return [json.loads(request.body) for request in self.requests if request.line == line]


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        line = f"{self.command} {self.path}"
        self.server.requests.append(Request(line, {name.lower(): value for name, value in self.headers.items()}, body))
        waiting = self.server.answers.get(line) or [Answer(b"no such path\n", 404)]
        self._answer(waiting.pop(0) if len(waiting) > 1 else waiting[0])

    do_POST = do_GET  # noqa: N815 - the name that the base class looks for
    do_PUT = do_GET  # noqa: N815
    do_DELETE = do_GET  # noqa: N815

    def _answer(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body) if answer.length is None else answer.length))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        thread = Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield service
        service.shutdown()
        thread.join()


class Result(NamedTuple):
    code: int
    out: str
    err: str


Penstock = Callable[..., Result]


@pytest.fixture
def penstock(service: Service, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Penstock:
    """Call the command against `service`, as `penstock("run", "list")`."""
    monkeypatch.delenv("SERVICE_API_TOKEN", raising=False)
    monkeypatch.setenv("SERVICE_URL", service.url)

    def run(*args: str) -> Result:
        code = call(args)
        return Result(code, *capsys.readouterr())

    return run


def stream(*events: tuple[int, dict[str, object]], length: int | None = None) -> Answer:
    """A Server-Sent Events answer; `length` larger than it has makes it break."""
    text = ": hello\n\n" + "".join(
        f"id: {seq}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n" for seq, event in events
    )
    return Answer(text.encode(), headers={"Content-Type": "text/event-stream"}, length=length)


@pytest.fixture
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is called there."""
    monkeypatch.chdir(tmp_path)
