"""What steps say, on the command line and with both clients of the API."""

from __future__ import annotations

import json

import pytest

from penstock.cli.terminal.live_view import bar
from penstock.client.sending import following
from penstock.client.views import ProgressView
from tests.cli.conftest import Answer, Penstock, Service
from tests.support.clients import Connect, connect_async, connect_blocking

LINE = {"seq": 7, "at": "2026-01-01T00:00:00Z", "level": "error", "text": "no\x1b[2Jgood", "step_id": "a", "attempt": 2}
OTHER = {**LINE, "seq": 8, "level": "info", "text": "good", "attempt": 1, "fields": {"n": 1}}
END = ("end", None, {"status": "completed"})


@pytest.fixture(params=[connect_blocking, connect_async])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Opens either client; what is async runs in a loop of its own."""
    opened: Connect = request.param
    return opened


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "RECONNECT_S", 0.0)


def events(*said: tuple[str, int | None, object], length: int | None = None) -> Answer:
    """A stream of events: name, id, data."""
    text = ": \n\n" + "".join(
        (f"id: {seq}\n" if seq else "") + f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, seq, data in said
    )
    return Answer(text.encode(), headers={"Content-Type": "text/event-stream"}, length=length)


def chunk(seq: int, data: object, step_id: str = "a", attempt: int = 1) -> tuple[str, int | None, object]:
    return "chunk", seq, {"step_id": step_id, "attempt": attempt, "data": data}


def test_lines_are_printed_so_that_they_cannot_steer_the_terminal(penstock: Penstock, service: Service) -> None:
    service.on("GET /runs/r1/logs?step=a&level=info&q=good", [LINE, OTHER])
    printed = penstock("run", "logs", "r1", "--step", "a", "--level", "info", "--grep", "good").out
    assert printed == (
        "2026-01-01T00:00:00.000Z  error     a attempt 2  no\\x1b[2Jgood\n"
        '2026-01-01T00:00:00.000Z  info      a  good  {"n":1}\n'
    ).replace('{"n":1}', json.dumps({"n": 1}))
    service.on("GET /runs/r1/logs", [LINE, OTHER])
    assert [LINE, OTHER] == json.loads(penstock("run", "logs", "r1", "--json").out)


def test_followed_lines_go_on_where_the_connection_was_lost(penstock: Penstock, service: Service) -> None:
    service.on("GET /runs/r1/logs", events(("log", 7, LINE), length=10_000), events(("log", 8, OTHER), END))
    printed = penstock("run", "logs", "r1", "-f", "--json").out
    assert [LINE, OTHER] == [json.loads(line) for line in printed.splitlines()]
    assert [None, "7"] == [request.headers.get("last-event-id") for request in service.requests]


def test_chunks_of_text_follow_each_other(penstock: Penstock, service: Service) -> None:
    dropped = ("dropped", None, {"step_id": "a", "attempt": 2, "count": 3})
    said = (chunk(1, "Hel"), chunk(2, "lo\x1b\n"), chunk(3, {"n": 1}), chunk(4, "again", attempt=2), dropped)
    service.on("GET /runs/r1/stream?step=a", events(*said, END))
    printed = penstock("run", "stream", "r1", "--step", "a").out
    assert 'Hello\\x1b\n{"n": 1}\n\n[a attempt 2]\nagain\n[3 chunks dropped]\n' == printed


def test_an_error_begins_on_a_line_of_its_own(penstock: Penstock, service: Service) -> None:
    refused = Answer(b"a valid bearer token is needed\n", 401)
    service.on("GET /runs/r1/stream", events(chunk(1, "tok")), refused)
    failed = penstock("run", "stream", "r1")
    assert (1, "tok\n", True) == (failed.code, failed.out, failed.err.startswith("Error: a valid bearer token"))


def test_both_clients_have_lines_and_chunks(connect: Connect, service: Service) -> None:
    service.on("GET /runs/r/logs", [LINE], events(("log", 7, LINE), END))
    service.on("GET /runs/r/stream", events(chunk(1, "x"), END))
    with connect(service.url) as client:
        assert [7] == [line.seq for line in client.logs("r")]
        assert [7] == [line.seq for line in client.follow_logs("r")]
        assert [(1, b'"x"')] == [(one.seq, bytes(one.data)) for one in client.chunks("r")]


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        (ProgressView(5, 10, "pages"), "[##########----------] 5 of 10 pages"),
        (ProgressView(11, 10), "[####################] 11 of 10"),
        (ProgressView(0, 0), "[####################] 0 of 0"),
        (ProgressView(0.5, None, "MB"), "0.5 MB"),
        (ProgressView(1_500_000, 3_000_000), "[##########----------] 1,500,000 of 3,000,000"),
    ],
)
def test_progress_is_a_bar_where_it_is_known_how_much_there_is(progress: ProgressView, shown: str) -> None:
    assert shown == bar(progress)


def test_the_status_of_a_run_shows_the_progress_of_a_step(penstock: Penstock, service: Service) -> None:
    step = {"status": "running", "attempts": 1, "progress": {"done": 5, "total": 10}}
    run = {"run_id": "r1", "workflow_id": "w", "version": "1", "status": "running", "created_at": LINE["at"]}
    service.on("GET /runs/r1", {**run, "steps": {"a": step}})
    service.on("GET /runs/r1/explain", {"status": "running", "waiting": []})
    assert "[##########----------] 5 of 10" in penstock("run", "status", "r1").out
