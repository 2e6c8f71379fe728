"""The HTTP client: what errors become, pages, and a stream of events that survives a lost connection."""

from __future__ import annotations

import json

import pytest

from penstock.client import client as client_module
from penstock.client.client import Client
from penstock.engine import errors
from tests.cli.conftest import Answer, Service, stream

RUN = {"run_id": "r", "workflow_id": "w", "status": "completed", "created_at": "2026-01-01T00:00:00Z", "steps": {}}


def event(kind: str) -> dict[str, object]:
    return {"type": kind, "run_id": "r", "timestamp": "2026-01-01T00:00:00Z"}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "RECONNECT_S", 0.001)
    monkeypatch.setattr(client_module, "RECONNECT_S_MAX", 0.001)


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
    service: Service, status: int, kind: type[errors.PenstockError]
) -> None:
    service.on("GET /runs/r", Answer(b"one\ntwo\n", status))
    with Client(service.url) as client, pytest.raises(errors.PenstockError, match="one\ntwo") as caught:
        client.run("r")
    assert kind is type(caught.value)


def test_invalid_names_one_problem_per_line(service: Service) -> None:
    service.on("POST /workflows", Answer(b"one\ntwo\n", 400))
    with Client(service.url) as client, pytest.raises(errors.Invalid) as caught:
        client.register(b"{}")
    assert ("one", "two") == caught.value.problems


def test_service_that_is_not_there_is_unavailable() -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(errors.Unavailable, match="cannot be reached"):
        client.ready()


def test_connection_that_breaks_in_an_answer_is_unavailable_with_unknown_outcome(service: Service) -> None:
    service.on("POST /runs", Answer(b"{", 201, length=100))
    with Client(service.url) as client, pytest.raises(errors.Unavailable, match="what it did is unknown"):
        client.start("w")


def test_answer_that_is_not_understood_is_no_crash(service: Service) -> None:
    service.on("GET /runs/r", Answer(b"<html>"))
    with Client(service.url) as client, pytest.raises(errors.PenstockError, match="cannot read"):
        client.run("r")


def test_token_and_idempotency_key_are_sent_and_input_stays_as_it_is(service: Service) -> None:
    service.on("POST /runs", {"run_id": "r"})
    with Client(service.url, token="t") as client:
        assert "r" == client.start("w", b'{"b": 1.10}', idempotency_key="k").run_id
        client.start("w")
    first, second = service.requests
    assert ("Bearer t", "k") == (first.headers["authorization"], first.headers["idempotency-key"])
    assert b'{"workflow":"w","input":{"b": 1.10}}' == first.body
    assert b'{"workflow":"w"}' == second.body


def test_names_with_slashes_and_dots_stay_one_segment(service: Service) -> None:
    with Client(service.url) as client:
        for name in ("a/b?c#d", "..", "a b%2F"):
            with pytest.raises(errors.NotFound):
                client.workflow(name)
    assert ["GET /workflows/a%2Fb%3Fc%23d", "GET /workflows/%2E%2E", "GET /workflows/a%20b%252F"] == [
        r.line for r in service.requests
    ]


def test_runs_come_from_all_pages_as_far_as_needed(service: Service) -> None:
    runs = [{**RUN, "run_id": str(i)} for i in range(5)]
    link = {"Link": '</runs?cursor=2,x>; rel="next"'}
    service.on("GET /runs?workflow=w&status=failed&limit=1000", Answer(json.dumps(runs[:2]).encode(), headers=link))
    service.on("GET /runs?limit=2", Answer(json.dumps(runs[:2]).encode(), headers=link))
    service.on("GET /runs?cursor=2,x", runs[2:])
    with Client(service.url) as client:
        assert ["0", "1", "2", "3", "4"] == [run.run_id for run in client.runs(workflow="w", status="failed")]
        service.requests.clear()
        assert ["0", "1"] == [run.run_id for run in client.runs(limit=2)]
    assert 1 == len(service.requests)


def test_following_ends_when_the_run_has_ended(service: Service) -> None:
    service.on("GET /runs/r/events", stream((3, event("workflow.started")), (5, event("workflow.completed"))))
    service.on("GET /runs/r", RUN)
    service.on("GET /runs/r/events?after=5", [])
    with Client(service.url) as client:
        assert [(3, "workflow.started"), (5, "workflow.completed")] == [(e.seq, e.type) for e in client.follow("r")]


def test_a_lost_connection_is_resumed_where_it_broke(service: Service) -> None:
    service.on(
        "GET /runs/r/events",
        stream((3, event("workflow.started")), length=10_000),
        Answer(b"starting\n", 503),
        stream((4, event("step.started"))),
        stream((5, event("workflow.completed"))),
    )
    service.on("GET /runs/r", {**RUN, "status": "running"}, RUN)
    service.on("GET /runs/r/events?after=5", [{**event("late"), "seq": 6}])
    with Client(service.url) as client:
        assert [3, 4, 5, 6] == [e.seq for e in client.follow("r")]
    resumed = [r.headers.get("last-event-id") for r in service.requests if r.line == "GET /runs/r/events"]
    assert [None, "3", "3", "4"] == resumed


def test_following_gives_up_after_enough_failures_and_at_once_at_the_start(service: Service) -> None:
    down = Answer(b"down\n", 503)
    service.on("GET /runs/r/events", down)
    with Client(service.url) as client, pytest.raises(errors.Unavailable):
        list(client.follow("r"))
    assert 1 == len(service.requests)
    service.on("GET /runs/r/events", stream((3, event("workflow.started")), length=10_000), down)
    with Client(service.url) as client, pytest.raises(errors.Unavailable):
        list(client.follow("r"))
    assert 1 + 1 + client_module.RECONNECTS_MAX + 1 == len(service.requests)


def test_following_an_unknown_run_is_not_found_and_a_page_of_html_no_stream(service: Service) -> None:
    with Client(service.url) as client, pytest.raises(errors.NotFound):
        list(client.follow("r"))
    service.on("GET /runs/r/events", Answer(b"<html>"))
    with Client(service.url) as client, pytest.raises(errors.PenstockError, match="cannot read"):
        list(client.follow("r"))


def test_a_worker_that_registered_nonsense_does_not_spoil_the_list(service: Service) -> None:
    service.on("GET /workers", [{"worker_id": 7}, {"worker_id": "w", "task_types": ["a"], "new": 1}])
    with Client(service.url) as client:
        assert ["w"] == [worker.worker_id for worker in client.workers()]


def test_address_without_scheme_is_invalid() -> None:
    with pytest.raises(errors.Invalid, match="must begin with http"):
        Client("localhost:8080")
