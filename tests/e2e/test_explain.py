"""Why runs wait: every reason brought about in a real service, and found by `GET /runs/{id}/explain`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from penstock.actors.diagnosis.explanation import explanation
from penstock.broker.store import open_store
from penstock.cli.terminal.session import RUN_NOT_COMPLETED
from penstock.client import Client
from penstock.config.settings import BrokerSettings, HttpSettings, Settings
from penstock.engine.waiting.reasons import Reason, WaitingReason
from penstock.http.app import create_app
from penstock.worker import Context, Pause, Worker
from tests.e2e.conftest import StartService
from tests.http.bridge import TOKEN
from tests.support.conductor import Conductor
from tests.support.service import PENSTOCK, Service, free_port
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(180)

FAST_S = 20.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("explain"), shards=1, http_workers=1, bridge_token=TOKEN) as started:
        yield started


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with service.client() as opened:
        yield opened


def register(client: Client, name: str, *steps: dict[str, Any], **fields: Any) -> None:
    client.register(orjson.dumps({"name": name, "steps": list(steps), **fields}))


def begin(client: Client, name: str, *steps: dict[str, Any], **fields: Any) -> str:
    register(client, name, *steps, **fields)
    return client.start(name).run_id


def found(client: Client, run_id: str, reason: Reason, when: Callable[[WaitingReason], bool] = bool) -> WaitingReason:
    """The entry with this reason, as soon as there is one."""
    deadline = time.monotonic() + FAST_S
    while time.monotonic() < deadline:
        waiting = client.explain(run_id).waiting
        for one in waiting:
            if one.reason is reason and when(one):
                return one
        time.sleep(0.02)
    raise AssertionError(f"{reason} is not among {waiting}")


async def soon(client: Client, run_id: str, reason: Reason) -> WaitingReason:
    return await asyncio.to_thread(found, client, run_id, reason)


def test_a_task_that_nobody_serves(client: Client) -> None:
    run_id = begin(client, "unserved", {"id": "a", "task": "nobody.serves"})
    one = found(client, run_id, Reason.NO_WORKER)
    assert ("a", "nobody.serves") == (one.step_id, one.details["task"])
    assert 'none serves task "nobody.serves" now' in one.text
    assert "\n" not in one.text


async def test_a_group_without_a_worker_though_others_serve_the_task(service: Service, client: Client) -> None:
    run_id = begin(client, "grouped", {"id": "a", "task": "grouped.work", "worker_group": "gpu"})
    worker = Worker(broker_url=service.broker_url)
    worker.task("grouped.work")(echo)
    async with worker.running():
        one = await asyncio.to_thread(
            found, client, run_id, Reason.WORKER_GROUP_EMPTY, lambda one: "other worker" in one.text
        )
    assert {"task": "grouped.work", "worker_group": "gpu"} == one.details


async def test_busy_workers_and_the_place_in_their_queue(service: Service, client: Client) -> None:
    register(client, "busy", {"id": "a", "task": "busy.work"})
    worker, free = Worker(broker_url=service.broker_url, max_tasks=1), asyncio.Event()

    @worker.task("busy.work")
    async def hold(value: Any) -> None:
        await free.wait()

    async with worker.running():
        run_ids = [client.start("busy").run_id for _ in range(4)]
        busy = await soon(client, run_ids[-1], Reason.WORKERS_BUSY)
        behind = await soon(client, run_ids[-1], Reason.QUEUED_BEHIND)
        first = client.explain(run_ids[0])
        free.set()
    assert {"busy": 1, "slots": 1} == busy.details
    assert {"place": 3} == behind.details
    assert [] == first.waiting, "a worker carries it out"


async def test_a_bound_worker_that_has_gone(service: Service, client: Client) -> None:
    register(
        client,
        "bound",
        {"id": "a", "task": "bound.work"},
        {"id": "pause", "type": "wait_for_event", "config": {"event": "go.on"}, "depends_on": ["a"]},
        {"id": "b", "task": "bound.work", "depends_on": ["pause"]},
        sticky="hard",
    )
    worker = Worker(broker_url=service.broker_url, worker_id="only-one")
    worker.task("bound.work")(echo)
    async with worker.running():
        run_id = client.start("bound").run_id
        await soon(client, run_id, Reason.WAITING_EVENT)
    client.send_event("go.on")
    one = await soon(client, run_id, Reason.STICKY_WORKER_GONE)
    assert ("b", {"worker_id": "only-one"}) == (one.step_id, one.details)


async def test_a_retry_that_is_not_due(service: Service, client: Client) -> None:
    step = {"id": "a", "task": "retry.work", "retry": {"max_attempts": 3, "initial_delay": "1h"}}
    worker = Worker(broker_url=service.broker_url)

    @worker.task("retry.work")
    async def fail(value: Any) -> None:
        raise ValueError("no luck\nat all")

    async with worker.running():
        run_id = begin(client, "retried", step)
        one = await soon(client, run_id, Reason.RETRY_DELAY)
    assert ({"attempt": 2}, True) == (one.details, one.until is not None and one.until > one.since)
    assert "no luck" in one.text
    assert "\n" not in one.text


def test_sleeps_events_approvals_and_children(client: Client) -> None:
    child = begin(client, "asleep", {"id": "s", "type": "sleep", "config": {"duration": "1h"}})
    assert found(client, child, Reason.SLEEPING).until == client.get_run(child).steps["s"].wake_at
    by = {"field": "order.id", "value": "7"}
    event = begin(
        client,
        "eventful",
        {"id": "e", "type": "wait_for_event", "config": {"event": "paid", "correlate": by, "timeout": "1h"}},
    )
    waits = found(client, event, Reason.WAITING_EVENT)
    assert ({"event": "paid"}, True) == (waits.details, waits.until is not None)
    assert 'whose order.id is "7", until' in waits.text
    approval = begin(client, "asked", {"id": "r", "type": "approval"})
    asked = found(client, approval, Reason.WAITING_APPROVAL)
    token = next(one.payload for one in client.events(approval) if one.type == "approval.requested")
    assert orjson.loads(bytes(token))["token"] not in orjson.dumps(asked.text).decode() + str(asked.details)
    assert f"penstock approval approve {approval} r" in asked.text
    parent = begin(client, "parent", {"id": "c", "type": "sub_workflow", "config": {"workflow": "asleep"}})
    waits = found(client, parent, Reason.WAITING_CHILD)
    assert client.get_run(parent).steps["c"].child_run_id == waits.details["child_run_id"]


def test_a_run_that_starts_later(client: Client) -> None:
    register(client, "later", {"id": "a", "task": "later.work"})
    run_id = client.start("later", run_at="2099-01-01T00:00:00Z").run_id
    assert "scheduled" == client.explain(run_id).status
    assert "2099-01-01T00:00:00.000000Z" == found(client, run_id, Reason.DELAYED_START).until


def test_a_paused_run_says_so_first_and_not_that_its_withdrawn_task_waits(client: Client) -> None:
    steps = ({"id": "a", "task": "paused.work"}, {"id": "s", "type": "sleep", "config": {"duration": "1h"}})
    run_id = begin(client, "paused", *steps)
    found(client, run_id, Reason.NO_WORKER)
    found(client, run_id, Reason.SLEEPING)
    client.pause(run_id)
    one = found(client, run_id, Reason.PAUSED)
    assert (None, f"penstock run resume {run_id}" in one.text) == (one.step_id, True)
    assert [Reason.PAUSED, Reason.SLEEPING] == [one.reason for one in client.explain(run_id).waiting]
    client.resume(run_id)
    found(client, run_id, Reason.NO_WORKER)
    assert Reason.PAUSED not in {one.reason for one in client.explain(run_id).waiting}


async def test_a_worker_that_has_put_its_task_aside(service: Service, client: Client) -> None:
    worker = Worker(broker_url=service.broker_url)

    @worker.task("aside.work")
    async def rest(value: Any, ctx: Context) -> None:
        raise Pause(3000, checkpoint="x", name="a while")

    async with worker.running():
        run_id = begin(client, "aside", {"id": "a", "task": "aside.work", "timeout": "1h"})
        one = await soon(client, run_id, Reason.PAUSED)
    assert "a" == one.step_id


async def test_elements_of_a_map_stand_for_one_another(service: Service, client: Client) -> None:
    step = {"id": "m", "type": "map", "task": "nobody.maps", "config": {"items": [1, 2, 3], "max_concurrency": 2}}
    one = await soon(client, begin(client, "mapped", step), Reason.NO_WORKER)
    assert "m.0" == one.step_id
    assert "1 other element of its map" in one.text


async def test_a_worker_that_was_killed_is_silent_when_its_next_sign_of_life_does_not_come(
    service: Service, client: Client
) -> None:
    run_id = begin(client, "killed", {"id": "a", "task": "killed.work"})
    with _worker_process(service, "killed.work", "w-killed"):
        await until(lambda: _runs(client, run_id, "a"))
        assert [] == client.explain(run_id).waiting
    async with open_store(BrokerSettings(url=service.broker_url), "test") as store:
        _, waiting = await explanation(store, run_id, _works, ahead_s=45)
    one = next(one for one in waiting if one.reason is Reason.WORKER_SILENT)
    assert {"worker_id": "w-killed"} == one.details
    assert one.until is not None


async def _runs(client: Client, run_id: str, step_id: str) -> bool:
    return client.get_run(run_id).steps[step_id].status == "running"


async def _works() -> str:
    return ""


async def echo(value: Any) -> Any:
    return value


def test_a_partition_whose_engine_gives_no_sign_of_life(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=1)
    with service.client() as client:
        register(client, "w", {"id": "a", "task": "work"})
        with _stopped(service, "shard-0"):
            run_id = client.start("w").run_id
            unowned = found(client, run_id, Reason.PARTITION_UNOWNED)
        assert f"partition {unowned.details['partition']}" in unowned.text
        found(client, run_id, Reason.NO_WORKER)


async def test_without_a_broker_the_answer_says_so() -> None:
    nowhere = BrokerSettings(url=f"nats://127.0.0.1:{free_port()}")
    settings = Settings(broker=nowhere, http=HttpSettings(api_token="t"))
    async with Conductor(create_app(settings)) as http:
        answer = await http.simulate_get(f"/runs/{'0' * 32}/explain", headers={"Authorization": "Bearer t"})
    assert (503, True) == (answer.status_code, "the broker is not connected" in answer.text)


@contextmanager
def _worker_process(service: Service, task: str, worker_id: str) -> Iterator[None]:
    """A worker that begins tasks and never ends them, killed at the end of the block."""
    command = [sys.executable, "-m", "tests.support.holding_worker", task, worker_id]
    process = subprocess.Popen(command, env=service.environ, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _stopped(service: Service, name: str) -> Iterator[None]:
    pid = service.kill(name, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_the_command_line_says_why_a_run_waits_down_to_the_child_that_it_waits_for(
    service: Service, client: Client
) -> None:
    register(client, "below", {"id": "z", "task": "nobody.below"})
    run_id = begin(client, "above", {"id": "c", "type": "sub_workflow", "config": {"workflow": "below"}})
    child = str(found(client, run_id, Reason.WAITING_CHILD).details["child_run_id"])
    found(client, child, Reason.NO_WORKER)
    said = service.penstock("run", "explain", run_id).stdout
    order = [f"{run_id} running, waits:", "waiting_child", f"  {child} running, waits:", "no_worker", "nobody.below"]
    assert sorted(map(said.index, order)) == list(map(said.index, order))
    as_json = orjson.loads(service.penstock("run", "explain", run_id, "--json").stdout)
    assert ("running", "waiting_child") == (as_json["status"], as_json["waiting"][0]["reason"])
    status = service.penstock("run", "status", child)
    assert 'waits: step "z" waits for a worker' in status.stdout
    ended = client.cancel(child)
    assert "cancelled" == ended.status
    assert "waits:" not in service.penstock("run", "status", child).stdout
    assert 1 == service.penstock("run", "explain", "0" * 32).returncode


def test_who_waits_for_a_run_is_told_why_it_does_not_go_on_once_for_each_reason(
    service: Service, client: Client
) -> None:
    register(client, "waited", {"id": "a", "task": "waited.work"})
    with subprocess.Popen(
        [PENSTOCK, "run", "start", "waited", "--wait"],
        env=service.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        run_id = process.stderr.readline().strip()
        told = process.stderr.readline()
        client.cancel(run_id)
        rest = process.stderr.read()
        assert RUN_NOT_COMPLETED == process.wait(20)
    assert told.startswith('waits: step "a" waits for a worker, and none serves task "waited.work" now')
    assert "" == rest
