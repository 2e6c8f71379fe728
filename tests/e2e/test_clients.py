"""Both clients of the HTTP API against the whole service, and the examples of docs/client.md."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec import UNSET

from penstock.client import AsyncClient, Client, ToCancel, ToRetry
from penstock.engine.errors import Conflict, Invalid, NotFound
from tests.support.clients import Connect, connect_async, connect_blocking
from tests.support.service import Service
from tests.support.waiting import until_found

PAGE = Path(__file__).resolve().parents[2] / "docs" / "client.md"
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
PRINTED = re.compile(r"```text\n(.*?)```", re.DOTALL)

ECHO = {"name": "echo", "steps": [{"id": "a", "task": "hello"}]}
ASKING = {"name": "asking", "steps": [{"id": "ask", "type": "approval", "task": "ask", "config": {"timeout": "1h"}}]}


@pytest.fixture(params=[connect_blocking, connect_async])
def client(service: Service, request: pytest.FixtureRequest) -> Iterator[Any]:
    connect: Connect = request.param
    with connect(service.url) as client:
        yield client


@contextmanager
def working(service: Service) -> Iterator[None]:
    """A worker that completes tasks `hello` with their input."""
    command = [sys.executable, "-m", "tests.support.echo_worker", "hello"]
    worker = subprocess.Popen(command, env=service.environ, cwd=PAGE.parents[1])
    try:
        yield
    finally:
        worker.terminate()
        worker.wait()


def test_a_run_from_its_definition_to_its_output(service: Service, client: Any) -> None:
    assert ("echo", "registered") == (client.register(orjson.dumps(ECHO)).name, "registered")
    assert ["echo"] == [found.name for found in client.workflows()]
    assert "hello" == client.workflow("echo").steps[0].task
    with working(service):
        run_id = client.start("echo", b'{"n":1}', idempotency_key="k").run_id
        assert run_id == client.start("echo", b'{"n":1}', idempotency_key="k").run_id
        followed = [event.type for event in client.follow(run_id)]
        assert ["hello"] == [task for worker in client.workers() for task in worker.task_types]
    assert ("workflow.started", "workflow.completed") == (followed[0], followed[-1])
    assert followed == [event.type for event in client.events(run_id)]
    run = client.get_run(run_id)
    assert ("completed", True, b'{"n":1}') == (run.status, run.ended, bytes(run.input))
    assert b'{"n":1}' == client.output(run_id, "a")
    with pytest.raises(Conflict):
        client.cancel(run_id)
    with pytest.raises(Conflict):
        client.retry(run_id)
    with pytest.raises(NotFound):
        client.output(run_id, "b")


def test_a_call_is_answered_with_the_output_of_the_run(service: Service, client: Any) -> None:
    client.register(orjson.dumps(ECHO))
    with working(service):
        answer = client.call("echo", b'{"n":1}', timeout_ms=20_000, idempotency_key="called")
    assert ("completed", 200, "application/json", b'{"n":1}') == (
        answer.outcome,
        answer.status,
        answer.content_type,
        answer.body,
    )
    assert answer == client.call("echo", b"2", idempotency_key="called")
    assert "completed" == client.get_run(answer.run_id).status
    late = client.call("echo", timeout_ms=0)
    assert ("running", 202) == (late.outcome, late.status)
    client.cancel(late.run_id)
    with pytest.raises(NotFound):
        client.call("unknown")


def test_a_call_is_answered_by_the_first_step_that_responds(client: Any) -> None:
    first = {"status": "${{ input.code }}", "headers": {"Content-Type": "text/csv"}, "body": "n,${{ input.n }}"}
    steps = [
        {"id": "first", "type": "respond", "config": first},
        {"id": "second", "type": "respond", "depends_on": ["first"], "config": {"body": 2}},
        {"id": "ask", "type": "approval", "task": "ask", "config": {"timeout": "1h"}, "depends_on": ["second"]},
    ]
    [warning] = client.register(orjson.dumps({"name": "responding", "steps": steps})).warnings
    assert 'step "second" responds after step "first": only the first response of a run counts' == warning
    answer = client.call("responding", b'{"code":202,"n":1}')
    assert ("responded", 202, "text/csv", b"n,1") == (
        answer.outcome,
        answer.status,
        answer.content_type,
        answer.body,
    )
    assert "running" == client.get_run(answer.run_id).status
    failed = client.call("responding", b'{"code":99,"n":1}')
    assert ("failed", 502, True) == (failed.outcome, failed.status, b"not a status from 200 to 599" in failed.body)
    client.cancel(answer.run_id)


def test_many_runs_are_started_listed_and_cancelled(client: Any) -> None:
    client.register(orjson.dumps(ECHO))
    started = client.bulk("echo", [b"1", b"2", b"3"])
    assert 3 == started.total == len(set(started.run_ids))
    assert "sent" == client.signal(started.run_ids[0], "news", b"payload").status
    done = client.cancel_all(ToCancel(workflow_id="echo"))
    assert (3, set(started.run_ids), []) == (done.total, set(done.cancelled), done.skipped)
    assert set(started.run_ids) == {run.run_id for run in client.runs(workflow="echo")}
    assert 2 == len(list(client.runs(workflow="echo", limit=2)))
    assert [] == list(client.runs(workflow="echo", limit=0))
    assert 0 == client.retry_all(ToRetry(workflow_id="echo", mode="replay")).total
    later = client.start("echo", run_at="2099-01-01T00:00:00Z")
    assert "scheduled" == later.status == client.scheduled(later.run_id).status
    assert "cancelled" == client.unschedule(later.run_id).status
    with pytest.raises(NotFound):
        client.scheduled(later.run_id)
    with pytest.raises(Invalid):
        client.cancel_all(ToCancel(workflow_id="echo", status="done"))


def test_versions_are_listed_started_and_deleted(client: Any) -> None:
    for version in ("1", "2"):
        registered = client.register(orjson.dumps({**ASKING, "name": "versioned", "version": version}))
        assert ("versioned", UNSET) == (registered.name, registered.warnings)
    assert ["2", "1"] == [one.version for one in client.versions("versioned")]
    assert ("2", "1") == tuple(client.workflow("versioned", version).version for version in (None, "1"))
    run_id = client.start("versioned", version="1").run_id
    assert "1" == client.get_run(run_id).version
    assert 2 == client.bulk("versioned", [b"1", b"2"], version="1").total
    with pytest.raises(NotFound, match='no version "3"'):
        client.start("versioned", version="3")
    with pytest.raises(Conflict, match="3 runs that have not ended"):
        client.delete_workflow("versioned")
    assert "deleted" == client.delete_workflow("versioned", force=True).status
    with pytest.raises(NotFound):
        client.versions("versioned")
    assert 3 == client.cancel_all(ToCancel(workflow_id="versioned")).total


def test_triggers_are_made_changed_fired_and_removed(client: Any) -> None:
    client.register(orjson.dumps(ECHO))
    made = client.put_trigger(orjson.dumps({"name": "t", "workflow": "echo", "webhook": {"secret": "s"}}))
    assert (True, True) == (made.enabled, made.webhook.secret)
    assert made == client.set_trigger(made) == client.trigger("t")
    assert [made] == client.triggers()
    assert client.test_trigger("t", b"{}").would_start
    assert "running" == client.get_run(client.fire_trigger("t", b"{}").run_id).status
    with pytest.raises(Conflict, match='1 trigger: "t"'):
        client.delete_workflow("echo")
    sent = client.send_event("order.paid", b'{"n": 1}', idempotency_key="k")
    assert sent == client.send_event("order.paid", b"2", idempotency_key="k")
    assert sent.seq < client.send_event("order.paid").seq
    with pytest.raises(Invalid):
        client.send_event("webhook.t")
    assert client.delete_trigger("t") is None
    assert [] == client.triggers()
    with pytest.raises(NotFound):
        client.trigger("t")


def test_an_operator_decides_what_waits_for_a_person(client: Any) -> None:
    client.register(orjson.dumps(ASKING))
    run_id = client.start("asking").run_id
    waiting = next(event for event in client.follow(run_id) if event.type == "approval.requested")
    assert "ask" == waiting.step_id
    listed = until_found(lambda: list(client.approvals(workflow="asking")))  # stored right after the event
    assert [(run_id, "ask")] == [(one.run_id, one.step_id) for one in listed]
    with pytest.raises(Invalid):
        client.decide_by_right(run_id, "ask", "perhaps")
    assert "rejected" == client.decide_by_right(run_id, "ask", "reject", comment="no").status
    assert "workflow.failed" == list(client.follow(run_id))[-1].type
    assert "failed" == client.get_run(run_id).status
    assert ([], []) == (list(client.dead_letters(run_id="0" * 32)), list(islice(client.approvals(), 1)))
    with pytest.raises(NotFound):
        client.dead_letter(2**40)
    client.health()
    client.ready()


def test_both_clients_have_the_same_documented_methods() -> None:
    def methods(kind: type) -> dict[str, str]:
        return {name: getattr(kind, name).__doc__ for name in dir(kind) if not name.startswith("_")}

    assert methods(Client) == methods(AsyncClient)
    assert all(methods(Client).values())
    assert "Start a run" in str(Client.start.__doc__)


def test_the_examples_of_the_page_print_what_it_says(service: Service) -> None:
    page = PAGE.read_text()
    printed = []
    with working(service):
        for example in EXAMPLE.findall(page):
            with redirect_stdout(StringIO()) as output:
                exec(example.replace("http://127.0.0.1:8080", service.url), {})
            printed.append(output.getvalue().replace("step.started\n", ""))  # where the machine took more than 25 ms
    assert len(printed) > 1
    assert PRINTED.findall(page) == printed
