"""Runs as objects of both clients, against the whole service: their results, their events, and a service that is
killed meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import orjson
import pydantic
import pytest

from penstock import AsyncClient, Client, Workflow
from penstock.client import InvalidError, NotFoundError, RunFailedError, RunHandle
from penstock.engine.errors import Invalid
from tests.support.service import Service

ECHO = {"name": "echo", "steps": [{"id": "a", "task": "hello"}]}
APPROVAL = {"type": "approval", "task": "ask", "config": {"timeout": "1h"}}
WAITING = {"name": "waiting", "steps": [{"id": "ask", **APPROVAL}, {"id": "a", "task": "hello", "depends_on": ["ask"]}]}
SLOW = {
    "name": "slow",
    "steps": [
        {"id": f"s{n}", "type": "sleep", "config": {"duration": "200ms"}, "depends_on": [f"s{n - 1}"] if n else []}
        for n in range(30)
    ],
}
FAILING = {"name": "failing", "steps": [{"id": "a", "type": "respond", "config": {"status": "${{ input.code }}"}}]}
WORKER_MS_MAX = 120_000  # until the worker has started on a busy machine
TEXT = {"Content-Type": "text/plain"}
TELLING = {"name": "telling", "steps": [{"id": "a", "type": "respond", "config": {"headers": TEXT, "body": "done"}}]}


@dataclass
class Parcel:
    n: int


class Crate(msgspec.Struct):
    n: int


class Letter(pydantic.BaseModel):
    n: int = pydantic.Field(alias="number")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with (
        Service(tmp_path_factory.mktemp("service"), shards=1, http_workers=1) as service,
        Client(service.url) as client,
    ):
        for definition in (ECHO, WAITING, FAILING, TELLING):
            client.register(orjson.dumps(definition))
        with working(service):
            assert "completed" == client.call("echo", timeout_ms=WORKER_MS_MAX).outcome
            yield service


@contextmanager
def working(service: Service) -> Iterator[None]:
    """A worker that completes tasks `hello` with their input."""
    command = [sys.executable, "-m", "tests.support.echo_worker", "hello"]
    worker = subprocess.Popen(command, env=service.environ, cwd=Path(__file__).resolve().parents[2])
    try:
        yield
    finally:
        worker.terminate()
        worker.wait()


def test_a_run_gives_its_result_as_the_type_that_is_asked_for(shared: Service) -> None:
    with Client(shared.url) as client:
        run = client.run("echo", Parcel(3))
        assert {"n": 3} == run.result(timeout=30)
        assert Crate(3) == run.result(type=Crate)
        assert "completed" == run.view().status
        with pytest.raises(Invalid, match=f"the result of run {run.run_id} is something else"):
            run.result(type=list[int])
        assert {"number": 4} == client.run("echo", Letter(number=4)).result(timeout=30)
        assert [1.5] == client.run("echo", b"[1.5]").result(timeout=30)
        assert "done" == client.run("telling").result(timeout=30)


async def test_the_same_with_asyncio(shared: Service) -> None:
    async with AsyncClient(shared.url) as client:
        assert {"n": 3} == await client.run("echo", Parcel(3)).result(timeout=30)
        run = await client.run("echo", 1)
        assert (1, "completed") == (await run.result(), (await run.view()).status)
        results = await asyncio.gather(*(client.run("echo", n).result(30, type=int) for n in range(20)))
        assert list(range(20)) == results
        kinds = [event.type async for event in client.run("echo").events()]
        assert ("workflow.started", "workflow.completed") == (kinds[0], kinds[-1])
        with pytest.raises(RuntimeError, match="await it first"):
            client.run("echo").run_id  # noqa: B018


def test_a_result_that_is_not_there_in_time_is_late_and_the_run_goes_on(shared: Service) -> None:
    with Client(shared.url) as client:
        run = client.run("waiting", 7)
        for timeout in (0, 0.2):
            with pytest.raises(TimeoutError, match='workflow "waiting" has not ended within'):
                run.result(timeout=timeout)
        assert "running" == run.view().status
        client.decide_by_right(run.run_id, "ask", "approve")
        run.result(timeout=30)
        assert "workflow.completed" == list(run.events())[-1].type


def test_a_run_that_fails_or_is_cancelled_has_no_result(shared: Service) -> None:
    with Client(shared.url) as client:
        failed, cancelled = client.run("failing", {"code": 99}), client.run("waiting")
        with pytest.raises(RunFailedError, match="not a status from 200 to 599") as caught:
            failed.result(timeout=30)
        assert (failed.run_id, "failed") == (caught.value.run_id, caught.value.status)
        assert "sent" == cancelled.signal("news", b"1").status
        cancelled.cancel("changed my mind")
        with pytest.raises(RunFailedError) as caught:
            cancelled.result(timeout=30)
        assert "cancelled" == caught.value.status


def test_a_workflow_is_registered_only_if_that_is_asked_for(shared: Service) -> None:
    flow = Workflow("in-python", input=Parcel)
    flow.step("hello", input=flow.input)
    with Client(shared.url) as client:
        with pytest.raises(NotFoundError) as missing:
            client.run(flow, Parcel(1))
        assert ("not-found", 404, "in-python") == (missing.value.code, missing.value.status, missing.value.offender)
        assert {"n": 2} == client.run(flow, Parcel(2), register=True).result(timeout=30)
        assert {"n": 3} == client.run(flow, Parcel(3)).result(timeout=30)
        with pytest.raises(InvalidError, match="n"):
            client.run(flow, {"n": "many"})
        with pytest.raises(Invalid, match='workflow "in-python" is only a name'):
            client.run("in-python", register=True)
        with pytest.raises(Invalid, match="cannot be written as JSON: objects of type object"):
            client.run(flow, object())


def test_a_key_makes_two_calls_one_run(shared: Service) -> None:
    with Client(shared.url) as client:
        first = client.run("echo", 1, idempotency_key="order-1", labels={"team": "a"})
        again = client.run("echo", 1, idempotency_key="order-1")
        assert first.run_id == again.run_id
        assert first.run_id != client.run("echo", 1).run_id
        assert {"team": "a"} == first.view().labels


def watch_blocking(url: str, seen: list[int], kinds: list[str]) -> Callable[[], object]:
    def watch() -> object:
        with Client(url) as client:
            run: RunHandle = client.run("slow")
            for event in run.events():
                seen.append(event.seq)
                kinds.append(event.type)
            stored = [event.seq for event in client.events(run.run_id)]
            return stored, run.result(timeout=60)

    return watch


def watch_async(url: str, seen: list[int], kinds: list[str]) -> Callable[[], object]:
    async def watch() -> object:
        async with AsyncClient(url) as client:
            run = await client.run("slow")
            async for event in run.events():
                seen.append(event.seq)
                kinds.append(event.type)
            stored = [event.seq for event in await client.events(run.run_id)]
            return stored, await run.result(timeout=60)

    return lambda: asyncio.run(watch())


@pytest.mark.parametrize("watching", [watch_blocking, watch_async])
def test_events_go_on_without_a_gap_or_a_repeat_when_the_service_is_killed(
    tmp_path: Path, watching: Callable[[str, list[int], list[str]], Callable[[], object]]
) -> None:
    seen, kinds, found = list[int](), list[str](), list[Any]()
    with Service(tmp_path, shards=1, http_workers=1) as service:
        with Client(service.url) as client:
            client.register(orjson.dumps(SLOW))
        watch = watching(service.url, seen, kinds)
        thread = Thread(target=lambda: found.append(watch()), daemon=True)
        thread.start()
        deadline = time.monotonic() + 60
        while len(seen) < 5 and time.monotonic() < deadline:
            thread.join(0.01)
        before = len(seen)
        service.kill_all()
        service.start()
        thread.join(90)
        assert found, (kinds, service.last_words())
    stored, result = found[0]
    assert 5 <= before < len(seen)
    assert (stored, "workflow.completed") == (seen, kinds[-1])
    assert result is None
