"""Polling: what comes, when, to whom, and what is never lost."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from typing import Any

import httpx2
import msgspec
import orjson
import pytest
from msgspec import Raw

from penstock.broker import names
from penstock.broker.store import Store
from penstock.engine.run.commands import DispatchTask
from penstock.engine.run.events import StepFailed
from tests.http.bridge import client, frames, is_polled, leased, poll, polled, requests_waiting, resolve
from tests.support.frontends import FrontEnd
from tests.support.waiting import until, until_true
from tests.worker.task_queue import acknowledged, answer, dispatch, durable, new_run_id, put_raw, taking

POLLERS = 500
POOL = 25  # connections of one client

RULE = "may hold only A-Z a-z 0-9 _ - and single dots between them"


async def test_task_has_every_field(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    run_id = await dispatch(store, task, {"n": [1, None, "ü"]}, metadata={"k": "v"})
    assert await polled(bridge, task) == {
        "task_id": f"{run_id}.s",
        "run_id": run_id,
        "step_id": "s",
        "iteration": 0,
        "attempt": 1,
        "input": {"n": [1, None, "ü"]},
        "workflow_name": "flow",
        "task": task,
        "metadata": {"k": "v"},
    }


async def test_poll_waits_and_answers_when_a_task_comes(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    waits = asyncio.create_task(poll(bridge, task, f"{task}-b", f"{task}-c", timeout_ms=60_000))
    await is_polled(store, f"{task}-c")
    run_id = await dispatch(store, f"{task}-c")
    (found,) = await waits
    assert (run_id, f"{task}-c") == (found["run_id"], found["task"])


async def test_poll_without_tasks_is_empty_when_its_time_is_over(bridge: httpx2.AsyncClient, task: str) -> None:
    begin = time.monotonic()
    assert [] == await poll(bridge, task, timeout_ms=300)
    assert 0.25 < time.monotonic() - begin < 5


async def test_poll_that_does_not_wait_gets_what_is_there(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    assert [] == await poll(bridge, task, timeout_ms=0)
    run_id = await dispatch(store, task)
    (found,) = await poll(bridge, task, timeout_ms=0)
    assert run_id == found["run_id"]


async def test_poll_gets_no_more_than_it_asked_for(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    run_ids = [await dispatch(store, task) for _ in range(25)]
    seen: list[str] = []
    while len(seen) < 25:
        found = await poll(bridge, task, max_tasks=10)
        assert 1 <= len(found) <= 10
        seen += [one["run_id"] for one in found]
        for one in found:
            assert 200 == (await resolve(bridge, one, "complete")).status_code
    assert sorted(run_ids) == sorted(seen)
    await acknowledged(store, task)


async def test_task_for_a_client_that_went_away_is_there_for_another_at_once(
    store: Store, bridge: httpx2.AsyncClient, other: httpx2.AsyncClient, task: str
) -> None:
    for _ in range(20):
        gone = asyncio.create_task(poll(bridge, task, timeout_ms=60_000))
        await is_polled(store, task)
        gone.cancel()
        with suppress(asyncio.CancelledError):  # its connection is closed then
            await gone
        run_id = await dispatch(store, task)
        begin = time.monotonic()
        found = await polled(other, task)
        assert run_id == found["run_id"]
        assert time.monotonic() - begin < 5  # the ack wait is 30
        assert 200 == (await resolve(other, found, "complete")).status_code


async def test_requests_that_nobody_waits_behind_end_soon(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    assert [] == await poll(bridge, task, max_tasks=10, timeout_ms=1)

    async def none() -> bool:
        return await requests_waiting(store, task) == 0

    await until(none, 10)
    run_id = await dispatch(store, task)
    async with taking(store, task) as taken:
        delivery = await asyncio.wait_for(taken.get(), 5)
    assert (run_id, 1) == (delivery.subject[-32:], delivery.deliveries)


async def test_types_with_a_backlog_do_not_starve_each_other(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    types = [f"{task}-{n}" for n in range(5)]
    for one in types:
        for _ in range(20):
            await dispatch(store, one)
    seen: dict[str, int] = dict.fromkeys(types, 0)
    for _ in range(60):
        (found,) = await poll(bridge, *types)
        seen[found["task"]] += 1
        assert found.get("deliveries", 1) <= 10
        assert 200 == (await resolve(bridge, found, "complete")).status_code
    assert all(count >= 5 for count in seen.values()), seen


async def test_five_hundred_pollers_on_one_process(store: Store, ends: list[FrontEnd], task: str) -> None:
    async with AsyncExitStack() as stack:  # a pool looks through all its connections at each event: several small ones
        many = [await stack.enter_async_context(client(ends[0].url)) for _ in range(POLLERS // POOL)]
        polls = [asyncio.create_task(poll(many[n // POOL], task, timeout_ms=60_000)) for n in range(POLLERS)]
        await is_polled(store, task)
        begin = time.monotonic()
        run_ids = await asyncio.gather(*(dispatch(store, task) for _ in range(POLLERS)))
        found = [one for answers in await asyncio.wait_for(asyncio.gather(*polls), 30) for one in answers]
        answers = await asyncio.gather(*(resolve(many[n // POOL], one, "complete") for n, one in enumerate(found)))
        assert time.monotonic() - begin < 30
    assert sorted(run_ids) == sorted(one["run_id"] for one in found)
    assert {200} == {one.status_code for one in answers}
    await acknowledged(store, task)


async def test_group_gets_only_its_own(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    plain, grouped = await dispatch(store, task), await dispatch(store, task, group="gpu")
    assert grouped == (await polled(bridge, task, worker_group="gpu"))["run_id"]
    assert [] == await poll(bridge, task, worker_group="gpu", timeout_ms=50)
    assert plain == (await polled(bridge, task))["run_id"]


async def test_tasks_bound_to_a_worker_reach_it_alone(
    store: Store, bridge: httpx2.AsyncClient, other: httpx2.AsyncClient, task: str
) -> None:
    run_id = new_run_id()
    command = DispatchTask("s", task, 1, 0, Raw(b"1"), {}, None, worker="w-1")
    await store.tasks.send(run_id, "flow", command)
    assert [] == await poll(bridge, task, worker_id="w-2", timeout_ms=100)
    assert [] == await poll(other, task, timeout_ms=100)
    async with frames(store, names.STICKY) as seen:
        found = await polled(other, task, worker_id="w-1")
        assert (run_id, 1) == (found["run_id"], found["input"])
        assert 200 == (await resolve(bridge, found, "complete", output=2)).status_code
        await until_true(lambda: seen == [b"+ACK"])
    assert "w-1" == (await answer(store, run_id)).worker_id


async def test_release_ends_a_workers_polls_in_every_process(
    bridge: httpx2.AsyncClient, other: httpx2.AsyncClient, store: Store, task: str
) -> None:
    stays = asyncio.create_task(poll(bridge, task, worker_id="w-8", timeout_ms=60_000))
    ends = [asyncio.create_task(poll(one, task, worker_id="w-7", timeout_ms=60_000)) for one in (bridge, other)]
    async with asyncio.timeout(20):
        while not all(one.done() for one in ends):  # a poll that has not arrived yet cannot be ended
            assert [] == await poll(bridge, task, worker_id="w-7", max_tasks=0, timeout_ms=0)
            await asyncio.wait(ends, timeout=0.05)
    assert [[], []] == [one.result() for one in ends]
    assert not stays.done()
    await dispatch(store, task)
    assert 1 == len(await stays)


async def test_task_delivered_too_often_fails_and_is_not_handed_out(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task)
    async with taking(store, task) as taken:
        for _ in range(10):
            await (await taken.get()).give_back()
    assert [] == await poll(bridge, task, timeout_ms=500)
    event = await answer(store, run_id)
    assert isinstance(event, StepFailed)
    assert ("non_retriable", "delivered 10 times without an answer") == (
        event.payload.failure_type,
        event.payload.error,
    )
    await acknowledged(store, task)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"[]", b'{"run_id": "no run id", "step_id": "s", "task_id": "x"}']
)
async def test_body_that_is_no_task_is_put_aside(
    store: Store, bridge: httpx2.AsyncClient, task: str, body: bytes
) -> None:
    run_id = new_run_id()
    await put_raw(store, task, run_id, body)
    healthy = await dispatch(store, task)
    assert healthy == (await polled(bridge, task))["run_id"]
    (dead_letter,) = await store.reader.subject(names.DEAD, f"dead.{task}.{run_id}.*")
    assert body.decode("utf-8", "replace") == orjson.loads(dead_letter.data)["input"]


async def test_checkpoint_that_is_no_json_is_left_out(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    run_id = await dispatch(store, task, attempt=2)
    await store.checkpoints.put(f"{run_id}.s", b"\xff raw")
    assert "checkpoint" not in await polled(bridge, task)


async def test_task_stays_with_its_worker_while_it_is_silent(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    await durable(store, task, ack_wait_s=0.6)
    run_id = await dispatch(store, task)
    found = await polled(bridge, task)
    assert [] == await poll(bridge, task, timeout_ms=2500)  # four times the ack wait
    assert 200 == (await resolve(bridge, found, "complete")).status_code
    await answer(store, run_id)
    await acknowledged(store, task)


async def test_task_of_a_worker_that_was_silent_for_too_long_comes_again(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    """The queue with the shortest ack wait decides how often a process checks its leases; the task's own wait is longer
    than the poll."""
    await durable(store, f"{task}-impatient", ack_wait_s=0.6)
    assert [] == await poll(bridge, f"{task}-impatient", timeout_ms=0)
    await dispatch(store, task)
    found = await polled(bridge, task)
    kept = await leased(store, found)
    async with frames(store) as seen:
        await store.leases.replace(kept, msgspec.structs.replace(kept.lease, seen_at=time.time() - 301))
        assert 2 == (await polled(bridge, task))["deliveries"]
        await until_true(lambda: b"-NAK" in seen)  # the broker tells its own side first


async def test_sign_of_life_on_another_process_counts(
    store: Store, bridge: httpx2.AsyncClient, other: httpx2.AsyncClient, task: str
) -> None:
    await durable(store, task, ack_wait_s=0.6)
    await dispatch(store, task)
    found = await polled(bridge, task)
    assert 200 == (await resolve(other, found, "heartbeat")).status_code
    assert [] == await poll(other, task, timeout_ms=2000)
    assert 200 == (await resolve(other, found, "complete")).status_code


async def test_paused_task_is_left_alone_by_the_process_that_handed_it_out(
    store: Store, bridge: httpx2.AsyncClient, other: httpx2.AsyncClient, task: str
) -> None:
    await durable(store, task, ack_wait_s=0.6)
    await dispatch(store, task)
    found = await polled(bridge, task)
    assert 200 == (await resolve(other, found, "pause", duration_ms=2500)).status_code
    assert [] == await poll(bridge, task, timeout_ms=2000)  # a sign of life now would have it delivered after 0.6 s
    assert 2 == (await polled(bridge, task))["deliveries"]


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        ({"task_types": []}, ["task_types is empty"]),
        ({"task_types": ["a b", "c", ""]}, [f'task_types[0] "a b" {RULE}', "task_types[2] is empty"]),
        ({"task_types": "a"}, ["task_types must be an array, not a string"]),
        ({"task_types": ["a"] * 101}, ["task_types has 101 entries, 100 is the most"]),
        ({"max_tasks": 0}, ["max_tasks must be a whole number from 1 to 1000, not 0"]),
        ({"max_tasks": 1001}, ["max_tasks must be a whole number from 1 to 1000, not 1001"]),
        ({"max_tasks": 2**70}, [f"max_tasks must be a whole number from 1 to 1000, not {2**70}"]),
        ({"max_tasks": 1.5}, ["max_tasks must be a whole number, not 1.5"]),
        ({"timeout_ms": False}, ["timeout_ms must be a whole number, not false"]),
        ({"timeout_ms": 60_001}, ["timeout_ms must be a whole number from 0 to 60000, not 60001"]),
        ({"timeout_ms": -1}, ["timeout_ms must be a whole number from 0 to 60000, not -1"]),
        ({"timeout_ms": None}, ["timeout_ms is required"]),
        ({"worker_id": "a b", "worker_group": ""}, [f'worker_id "a b" {RULE}', "worker_group is empty"]),
        ({"tasks": 1}, ['unknown field "tasks"']),
        ({"task_types": ["a", "penstock.http"]},
         ['task type "penstock.http" is reserved: `penstock worker http` serves it']),
        ({"task_types": ["penstock.other"], "builtin": "http"},
         ['task_types[0] "penstock.other" is reserved: task types that begin with penstock. are the service\'s own']),
        ({"builtin": "mine"}, ["builtin must be one of http, not \"mine\""]),
    ],
)  # fmt: skip
async def test_bad_poll_names_every_offender(
    bridge: httpx2.AsyncClient, fields: dict[str, Any], problems: list[str]
) -> None:
    answer = await bridge.post("/v1/tasks/poll", json={"task_types": ["a"], "max_tasks": 1, "timeout_ms": 0, **fields})
    assert (400, problems) == (answer.status_code, answer.text.splitlines())


async def test_a_worker_that_says_so_gets_the_requests_of_http_steps(store: Store, bridge: httpx2.AsyncClient) -> None:
    run_id = await dispatch(store, "penstock.http")
    (found,) = await poll(bridge, "penstock.http", builtin="http")
    assert (run_id, "penstock.http") == (found["run_id"], found["task"])


async def test_longest_poll_is_taken(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    await dispatch(store, task)
    assert 1 == len(await poll(bridge, task, timeout_ms=60_000, max_tasks=1000))
