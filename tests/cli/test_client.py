"""Both HTTP clients: what errors become, pages, and a stream of events that survives a lost connection."""

from __future__ import annotations

import json

import pytest

from penstock.client import following
from penstock.engine import errors
from tests.cli.conftest import Answer, Service, stream
from tests.support.clients import Connect, connect_async, connect_blocking

RUN = {
    "run_id": "r",
    "workflow_id": "w",
    "version": "1",
    "status": "completed",
    "created_at": "2026-01-01T00:00:00Z",
    "steps": {},
}


def event(kind: str) -> dict[str, object]:
    return {"type": kind, "run_id": "r", "timestamp": "2026-01-01T00:00:00Z"}


@pytest.fixture(params=[connect_blocking, connect_async])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Opens a client: each test runs with the blocking and with the asyncio one."""
    opened: Connect = request.param
    return opened


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "RECONNECT_S", 0.001)
    monkeypatch.setattr(following, "RECONNECT_S_MAX", 0.001)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.Invalid),
        (401, errors.Denied),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (413, errors.TooLarge),
        (503, errors.Unavailable),
        (500, errors.PenstockError),
        (302, errors.PenstockError),
    ],
)
def test_error_answers_become_the_engines_errors(
    connect: Connect, service: Service, status: int, kind: type[errors.PenstockError]
) -> None:
    service.on("GET /runs/r", Answer(b"one\ntwo\n", status))
    with connect(service.url) as client, pytest.raises(errors.PenstockError, match="one\ntwo") as caught:
        client.run("r")
    assert kind is type(caught.value)


def test_invalid_names_one_problem_per_line(connect: Connect, service: Service) -> None:
    service.on("POST /workflows", Answer(b"one\ntwo\n", 400))
    with connect(service.url) as client, pytest.raises(errors.Invalid) as caught:
        client.register(b"{}")
    assert ("one", "two") == caught.value.problems


def test_service_that_is_not_there_is_unavailable(connect: Connect) -> None:
    with connect("http://127.0.0.1:1") as client, pytest.raises(errors.Unavailable, match="cannot be reached"):
        client.ready()


def test_connection_that_breaks_in_an_answer_is_unavailable_with_unknown_outcome(
    connect: Connect, service: Service
) -> None:
    service.on("POST /runs", Answer(b"{", 201, length=100))
    with connect(service.url) as client, pytest.raises(errors.Unavailable, match="what it did is unknown"):
        client.start("w")


def test_answer_that_is_not_understood_is_no_crash(connect: Connect, service: Service) -> None:
    service.on("GET /runs/r", Answer(b"<html>"))
    with connect(service.url) as client, pytest.raises(errors.PenstockError, match="cannot read"):
        client.run("r")


def test_token_and_idempotency_key_are_sent_and_input_stays_as_it_is(connect: Connect, service: Service) -> None:
    service.on("POST /runs", {"run_id": "r"})
    with connect(service.url, token="t") as client:
        assert "r" == client.start("w", b'{"b": 1.10}', idempotency_key="k").run_id
        client.start("w")
    first, second = service.requests
    assert ("Bearer t", "k") == (first.headers["authorization"], first.headers["idempotency-key"])
    assert b'{"workflow":"w","input":{"b": 1.10}}' == first.body
    assert b'{"workflow":"w"}' == second.body


def test_names_with_slashes_and_dots_stay_one_segment(connect: Connect, service: Service) -> None:
    with connect(service.url) as client:
        for name in ("a/b?c#d", "..", "a b%2F"):
            with pytest.raises(errors.NotFound):
                client.workflow(name)
    assert ["GET /workflows/a%2Fb%3Fc%23d", "GET /workflows/%2E%2E", "GET /workflows/a%20b%252F"] == [
        r.line for r in service.requests
    ]


def test_runs_come_from_all_pages_as_far_as_needed(connect: Connect, service: Service) -> None:
    runs = [{**RUN, "run_id": str(i)} for i in range(5)]
    link = {"Link": '</runs?cursor=2,x>; rel="next"'}
    service.on("GET /runs?workflow=w&status=failed&limit=1000", Answer(json.dumps(runs[:2]).encode(), headers=link))
    service.on("GET /runs?limit=2", Answer(json.dumps(runs[:2]).encode(), headers=link))
    service.on("GET /runs?cursor=2,x", runs[2:])
    with connect(service.url) as client:
        assert ["0", "1", "2", "3", "4"] == [run.run_id for run in client.runs(workflow="w", status="failed")]
        service.requests.clear()
        assert ["0", "1"] == [run.run_id for run in client.runs(limit=2)]
    assert 1 == len(service.requests)


def test_lists_and_numbers_may_be_of_paused_runs(connect: Connect, service: Service) -> None:
    service.on("GET /runs?paused=true&limit=1000", [{**RUN, "paused_at": "2026-01-01T00:00:00Z"}])
    service.on("GET /runs?paused=false&limit=1000", [])
    service.on("GET /runs/stats?paused=false", {"total": 0, "buckets": []})
    with connect(service.url) as client:
        assert ["2026-01-01T00:00:00Z"] == [run.paused_at for run in client.runs(paused=True)]
        assert [] == list(client.runs(paused=False))
        assert 0 == client.run_stats(paused=False).total


def test_numbers_within_a_time_say_how_far_back_they_go(connect: Connect, service: Service) -> None:
    answer = {"total": 0, "buckets": [], "complete": False, "since": "2026-01-01T00:00:00Z"}
    service.on("GET /runs/stats?within_ms=100", answer)
    service.on("GET /runs/stats", {"total": 0, "buckets": []})
    with connect(service.url) as client:
        found = client.run_stats(within_ms=100)
        assert (False, "2026-01-01T00:00:00Z") == (found.complete, found.since)
        assert (None, None) == (client.run_stats().complete, client.run_stats().since)


def test_following_ends_when_the_run_has_ended(connect: Connect, service: Service) -> None:
    service.on("GET /runs/r/events", stream((3, event("workflow.started")), (5, event("workflow.completed"))))
    service.on("GET /runs/r", RUN)
    service.on("GET /runs/r/events?after=5", [])
    with connect(service.url) as client:
        assert [(3, "workflow.started"), (5, "workflow.completed")] == [(e.seq, e.type) for e in client.follow("r")]


def test_a_lost_connection_is_resumed_where_it_broke(connect: Connect, service: Service) -> None:
    service.on(
        "GET /runs/r/events",
        stream((3, event("workflow.started")), length=10_000),
        Answer(b"starting\n", 503),
        stream((4, event("step.started"))),
        stream((5, event("workflow.completed"))),
    )
    service.on("GET /runs/r", {**RUN, "status": "running"}, RUN)
    service.on("GET /runs/r/events?after=5", [{**event("late"), "seq": 6}])
    with connect(service.url) as client:
        assert [3, 4, 5, 6] == [e.seq for e in client.follow("r")]
    resumed = [r.headers.get("last-event-id") for r in service.requests if r.line == "GET /runs/r/events"]
    assert [None, "3", "3", "4"] == resumed


def test_following_gives_up_after_enough_failures_and_at_once_at_the_start(connect: Connect, service: Service) -> None:
    down = Answer(b"down\n", 503)
    service.on("GET /runs/r/events", down)
    with connect(service.url) as client, pytest.raises(errors.Unavailable):
        list(client.follow("r"))
    assert 1 == len(service.requests)
    service.on("GET /runs/r/events", stream((3, event("workflow.started")), length=10_000), down)
    with connect(service.url) as client, pytest.raises(errors.Unavailable):
        list(client.follow("r"))
    assert 1 + 1 + following.RECONNECTS_MAX + 1 == len(service.requests)


def test_following_an_unknown_run_is_not_found_and_a_page_of_html_no_stream(connect: Connect, service: Service) -> None:
    with connect(service.url) as client, pytest.raises(errors.NotFound):
        list(client.follow("r"))
    service.on("GET /runs/r/events", Answer(b"<html>"))
    with connect(service.url) as client, pytest.raises(errors.PenstockError, match="cannot read"):
        list(client.follow("r"))


def test_a_worker_that_registered_nonsense_does_not_spoil_the_list(connect: Connect, service: Service) -> None:
    service.on("GET /workers", [{"worker_id": 7}, {"worker_id": "w", "task_types": ["a"], "new": 1}])
    with connect(service.url) as client:
        assert ["w"] == [worker.worker_id for worker in client.workers()]


def test_address_without_scheme_is_invalid(connect: Connect) -> None:
    with pytest.raises(errors.Invalid, match="must begin with http"):
        connect("localhost:8080")
