"""Both HTTP clients: what errors become, pages, and a stream of events that survives a lost connection."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from traceback import format_exception

import httpx2
import pytest

from penstock.client import AsyncClient, responses
from penstock.client.api_request import ApiRequest
from penstock.client.sending import errors as api
from penstock.client.sending import following, retries
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
    monkeypatch.setattr(retries, "PAUSE_S", 0.001)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, api.InvalidError),
        (401, api.UnauthorizedError),
        (403, api.ForbiddenError),
        (404, api.NotFoundError),
        (409, api.ConflictError),
        (413, api.TooLargeError),
        (429, api.OverloadedError),
        (502, api.UnavailableError),
        (503, api.UnavailableError),
        (500, api.ServiceError),
        (302, api.ServiceError),
    ],
)
def test_error_answers_become_the_error_of_their_status(
    connect: Connect, service: Service, status: int, kind: type[api.ServiceError]
) -> None:
    service.on("GET /runs/r", Answer(b"one\ntwo\n", status))
    with connect(service.url) as client, pytest.raises(errors.PenstockError, match="one\ntwo") as caught:
        client.get_run("r")
    assert kind is type(caught.value)
    assert isinstance(caught.value, api.ServiceError)
    assert (status, None, "GET /runs/r") == (caught.value.status, caught.value.code, caught.value.request)
    assert (("one", "two"), None) == (caught.value.problems, caught.value.offender)


@pytest.mark.parametrize(
    ("kind", "meaning"),
    [
        (api.InvalidError, errors.Invalid),
        (api.UnauthorizedError, errors.Denied),
        (api.ForbiddenError, errors.Forbidden),
        (api.NotFoundError, errors.NotFound),
        (api.ConflictError, errors.Conflict),
        (api.TooLargeError, errors.TooLarge),
        (api.OverloadedError, errors.Unavailable),
    ],
)
def test_errors_of_the_api_are_errors_of_the_same_meaning(
    kind: type[api.ServiceError], meaning: type[errors.PenstockError]
) -> None:
    assert issubclass(kind, meaning)
    assert issubclass(kind, api.NotAllowedError) == (kind in (api.UnauthorizedError, api.ForbiddenError))


def test_an_error_has_the_code_and_the_offender_that_the_service_names(connect: Connect, service: Service) -> None:
    problem = {"type": "urn:penstock:problem:not-found", "problems": ['there is no workflow "a \\"b\\""', "two"]}
    headers = {"Content-Type": "application/problem+json"}
    service.on("POST /runs", Answer(json.dumps(problem).encode(), 404, headers))
    with connect(service.url) as client, pytest.raises(api.NotFoundError) as caught:
        client.start("w")
    found = caught.value
    assert ("not-found", 404, 'a "b"', "POST /runs") == (found.code, found.status, found.offender, found.request)
    assert 'there is no workflow "a \\"b\\""\ntwo' == str(found)
    assert service.requests[0].headers["accept"].startswith("application/problem+json")


def test_a_workflow_that_only_the_body_names_is_not_found_either(connect: Connect, service: Service) -> None:
    problem = {"type": "urn:penstock:problem:invalid", "problems": ['no workflow "w"'], "missing": "workflow"}
    headers = {"Content-Type": "application/problem+json"}
    service.on("POST /runs", Answer(json.dumps(problem).encode(), 400, headers))
    with connect(service.url) as client, pytest.raises(api.NotFoundError) as caught:
        client.start("w")
    assert ("invalid", 400, "w") == (caught.value.code, caught.value.status, caught.value.offender)


def test_what_cannot_act_twice_is_sent_again_and_the_rest_is_not(connect: Connect, service: Service) -> None:
    down, broken = Answer(b"down\n", 503), Answer(b"{", 201, length=100)
    service.on("GET /runs/r", down, broken, RUN)
    service.on("POST /runs", broken, down, {"run_id": "r"})
    service.on("POST /workflows", down, {"name": "w"})
    service.on("POST /runs/r/cancel", down, {"run_id": "r"})
    service.on("POST /runs/r/resume", broken, {"run_id": "r"})
    with connect(service.url) as client:
        assert "r" == client.get_run("r").run_id
        assert "r" == client.start("w").run_id
        assert "w" == client.register(b"{}").name
        with pytest.raises(api.UnavailableError):
            client.cancel("r")
        with pytest.raises(api.UnavailableError, match="what it did is unknown"):
            client.resume("r")
    sent = [request for request in service.requests if request.line == "POST /runs"]
    assert [3, 3, 2, 1, 1] == [
        len([one for one in service.requests if one.line == line])
        for line in ("GET /runs/r", "POST /runs", "POST /workflows", "POST /runs/r/cancel", "POST /runs/r/resume")
    ]
    assert 1 == len({request.headers["idempotency-key"] for request in sent})


def test_what_was_refused_as_too_much_is_sent_again_whatever_it_is(connect: Connect, service: Service) -> None:
    service.on("POST /runs/r/cancel", Answer(b"slowly\n", 429), {"run_id": "r"})
    with connect(service.url) as client:
        assert "r" == client.cancel("r").run_id


def test_retries_end_and_can_be_switched_off(connect: Connect, service: Service) -> None:
    service.on("GET /runs/r", Answer(b"down\n", 503))
    for most in (0, 1, retries.RETRIES):
        service.requests.clear()
        with connect(service.url, retries=most) as client, pytest.raises(api.UnavailableError, match="down"):
            client.get_run("r")
        assert 1 + most == len(service.requests)
    service.on("POST /runs", {"run_id": "r"})
    with connect(service.url, retries=0) as client:
        client.start("w")
    assert "idempotency-key" not in service.requests[-1].headers


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("7", 7, 7),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0.1),
        ("in 50 s", 30, 50),
        ("soon", 0, 0.1),
    ],
)
def test_the_pause_is_what_the_service_asks_for(service: Service, text: str, least: float, most: float) -> None:
    if text == "in 50 s":
        text = format_datetime(datetime.now(UTC) + timedelta(seconds=50), usegmt=True)
    service.on("GET /runs/r", Answer(b"down\n", 503, {"Retry-After": text}))
    with connect_blocking(service.url, retries=0) as client, pytest.raises(api.UnavailableError) as caught:
        client.get_run("r")
    pause_s = retries.Retries(ApiRequest("GET", "/runs/r", bool), 1).pause_s(caught.value)
    assert least <= pause_s <= most


def test_a_service_that_asks_for_too_long_a_pause_is_not_waited_for(connect: Connect, service: Service) -> None:
    service.on("GET /runs/r", Answer(b"down\n", 503, {"Retry-After": "61"}))
    with connect(service.url) as client, pytest.raises(api.UnavailableError) as caught:
        client.get_run("r")
    assert (61, 1) == (caught.value.retry_after_s, len(service.requests))


def test_pauses_grow_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSE_S", 1.0)
    found = retries.Retries(ApiRequest("GET", "/", bool), 5)
    pauses = [found.pause_s(api.UnavailableError("down")) for _ in range(5)]
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, (1, 2, 4, 5, 5), strict=True)), pauses


def test_invalid_names_one_problem_per_line(connect: Connect, service: Service) -> None:
    service.on("POST /workflows", Answer(b"one\ntwo\n", 400))
    with connect(service.url) as client, pytest.raises(errors.Invalid) as caught:
        client.register(b"{}")
    assert ("one", "two") == caught.value.problems


def test_service_that_is_not_there_is_unavailable(connect: Connect) -> None:
    with (
        connect("http://127.0.0.1:1") as client,
        pytest.raises(errors.Unavailable, match="cannot be reached") as caught,
    ):
        client.ready()
    shown = "".join(format_exception(caught.value))
    assert 1 == shown.count("Traceback (most recent call last)")
    assert "Is it running? `penstock serve` starts it" in shown


def test_connection_that_breaks_in_an_answer_is_unavailable_with_unknown_outcome(
    connect: Connect, service: Service
) -> None:
    service.on("POST /runs", Answer(b"{", 201, length=100))
    with connect(service.url) as client, pytest.raises(errors.Unavailable, match="what it did is unknown"):
        client.start("w")


def test_answer_that_is_not_understood_is_no_crash(connect: Connect, service: Service) -> None:
    service.on("GET /runs/r", Answer(b"<html>"))
    with connect(service.url) as client, pytest.raises(errors.PenstockError, match="cannot read"):
        client.get_run("r")


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
    with connect(service.url, retries=0) as client, pytest.raises(errors.Unavailable):
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


def test_the_schema_of_definitions_comes_as_it_was_sent(connect: Connect, service: Service) -> None:
    service.on("GET /schemas/definition.json", Answer(b'{ "type": "object" }'))
    with connect(service.url) as client:
        assert b'{ "type": "object" }' == client.definition_schema()


def test_address_without_scheme_is_invalid(connect: Connect) -> None:
    with pytest.raises(errors.Invalid, match="must begin with http"):
        connect("localhost:8080")


async def test_tasks_that_share_a_client_do_not_wait_for_the_responses_of_each_other() -> None:
    """Nobody is answered before all have asked."""
    tasks, asked, all_asked = 150, 0, asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1
        if asked == tasks:
            all_asked.set()
        await all_asked.wait()
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, backlog=tasks) as server:
        port = server.sockets[0].getsockname()[1]
        async with AsyncClient(f"http://127.0.0.1:{port}", retries=0) as client:
            await asyncio.gather(*(client.health() for _ in range(tasks)))
    assert tasks == asked


def test_a_request_without_a_free_connection_was_not_sent() -> None:
    with pytest.raises(api.Unreachable, match="in use") as caught, responses.translated():
        raise httpx2.PoolTimeout("all are in use", request=httpx2.Request("GET", "http://127.0.0.1/runs"))
    assert "GET /runs" == caught.value.request
