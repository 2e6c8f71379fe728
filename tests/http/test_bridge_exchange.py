"""Answers and the next poll in one request."""

from __future__ import annotations

from typing import Any, cast

import httpx2
import orjson
import pytest
from msgspec import Raw

from penstock.broker.store import Store
from penstock.config.limits import PAYLOAD_BYTES_MAX, POLL_TASKS_MAX
from penstock.engine.errors import NotFound
from penstock.engine.run.events import StepFailed
from penstock.http.bridge.exchange import resolve_all
from penstock.http.bridge.live.live_requests import StreamAction
from penstock.http.bridge.requests import HeartbeatAction
from penstock.http.bridge.resolver import Resolver
from tests.http.bridge import poll, polled, resolve, room_for_chunks
from tests.http.test_bridge_live import streamed
from tests.worker.task_queue import answer, dispatch, output_of

NOBODY = f"{'0' * 32}.s"


async def exchange(bridge: httpx2.AsyncClient, resolutions: list[Any], **more: Any) -> dict[str, Any]:
    found = await bridge.post("/v1/tasks/exchange", json={"resolve": resolutions, **more})
    assert 200 == found.status_code, found.text
    result: dict[str, Any] = found.json()
    assert {"resolved", "tasks"} == result.keys()
    return result


def asking(task: str, timeout_ms: int = 10_000, **more: Any) -> dict[str, Any]:
    return {"task_types": [task], "max_tasks": 1, "timeout_ms": timeout_ms, **more}


async def test_answer_and_the_next_task_in_one_request(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    first, second = await dispatch(store, task, 1), await dispatch(store, task, 2)
    found = await exchange(bridge, [], worker_id="w-1", poll=asking(task))
    (one,) = found["tasks"]
    found = await exchange(
        bridge, [{"task_id": one["task_id"], "action": "complete", "output": "a"}], worker_id="w-1", poll=asking(task)
    )
    assert [{"task_id": one["task_id"], "status": "ok"}] == found["resolved"]
    (two,) = found["tasks"]
    assert {first, second} == {one["run_id"], two["run_id"]}
    found = await exchange(bridge, [{"task_id": two["task_id"], "action": "complete", "output": "b"}])
    assert [] == found["tasks"]
    events = [await answer(store, one["run_id"]), await answer(store, two["run_id"])]
    assert [("a", "w-1"), ("b", "w-1")] == [(output_of(event), event.worker_id) for event in events]


async def test_each_answer_stands_for_itself(
    store: Store, bridge: httpx2.AsyncClient, other: httpx2.AsyncClient, task: str
) -> None:
    """Also those that are resolved by another process, which is the one that handed them out."""
    for _ in range(4):
        await dispatch(store, task)
    good, failing, large, wrong = [await polled(bridge if number else other, task) for number in range(4)]
    found = await exchange(
        bridge,
        [
            {"task_id": NOBODY, "action": "complete"},
            {"task_id": good["task_id"], "action": "complete", "output": [1]},
            {"task_id": large["task_id"], "action": "complete", "output": "x" * PAYLOAD_BYTES_MAX},
            {"task_id": wrong["task_id"], "action": "finish"},
            {"task_id": wrong["task_id"], "action": "pause", "duration_ms": 1.5},
            {"task_id": failing["task_id"], "action": "fail", "error": "no"},
            {"task_id": "a b", "action": "heartbeat"},
        ],
    )
    assert [404, None, 413, 400, 400, None, 404] == [one.get("code") for one in found["resolved"]]
    assert ["error", "ok", "error", "error", "error", "ok", "error"] == [one["status"] for one in found["resolved"]]
    assert f'task "{NOBODY}" is not among the polled tasks' == found["resolved"][0]["error"]
    assert "duration_ms must be a whole number, not 1.5" == found["resolved"][4]["error"]
    assert [1] == output_of(await answer(store, good["run_id"]))
    assert isinstance(await answer(store, failing["run_id"]), StepFailed)
    for left in (large, wrong):
        assert 200 == (await resolve(bridge, left, "complete")).status_code


async def test_answers_of_one_task_are_carried_out_in_their_order(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    run_id = await dispatch(store, task)
    task_id = (await polled(bridge, task))["task_id"]
    actions = [
        {"action": "checkpoint", "data": {"page": 1}},
        {"action": "complete", "output": 1},
        {"action": "complete", "output": 2},
    ]
    found = await exchange(bridge, [{"task_id": task_id, **action} for action in actions])
    assert [None, None, 404] == [one.get("code") for one in found["resolved"]]
    entry = await store.checkpoints.get(f"{run_id}.s")
    assert entry is not None
    assert b'{"page":1}' == entry.value
    assert 1 == output_of(await answer(store, run_id))


async def test_no_chunk_is_stored_before_one_that_was_said_earlier(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    """Sent again, all of them are stored, in their order."""
    run_id = await dispatch(store, task)
    task_id = (await polled(bridge, task))["task_id"]
    chunks = ["x" * 20_000, "y", "z"]
    said = [{"task_id": task_id, "action": "stream", "data": one, "id": one[0]} for one in chunks]
    async with room_for_chunks(store, 5_000):
        found = await exchange(bridge, said)
        assert [503, 503, 503] == [one.get("code") for one in found["resolved"]]
    assert [] == await streamed(store, run_id)
    found = await exchange(bridge, said)
    assert ["ok", "ok", "ok"] == [one["status"] for one in found["resolved"]]
    assert chunks == await streamed(store, run_id)


async def test_no_chunk_is_stored_behind_one_whose_task_was_not_known() -> None:
    """It may be known a moment later, when what was lost with the broker has come back."""

    class Forgetful:
        def __init__(self) -> None:
            self.asked: list[type] = []

        def is_new(self, task_id: str) -> bool:
            return False

        async def resolve(self, task_id: str, action: object, body: bytes) -> None:
            self.asked.append(type(action))
            if len(self.asked) == 1:
                raise NotFound(f"task {task_id} is not among the polled tasks")

    said = [{"task_id": NOBODY, "action": "stream", "data": number} for number in range(3)]
    answers = [*said, {"task_id": NOBODY, "action": "heartbeat"}]
    resolver = Forgetful()
    found = await resolve_all(cast(Resolver, resolver), [(NOBODY, Raw(orjson.dumps(one))) for one in answers])
    assert ["error", "error", "error", "ok"] == [one.status for one in found]
    assert [StreamAction, HeartbeatAction] == resolver.asked


async def test_group_and_worker_of_the_poll_count(store: Store, bridge: httpx2.AsyncClient, task: str) -> None:
    run_id = await dispatch(store, task, group="gpu")
    assert [] == (await exchange(bridge, [], poll=asking(task, 100)))["tasks"]
    (found,) = (await exchange(bridge, [], worker_id="w-2", poll=asking(task, worker_group="gpu")))["tasks"]
    await exchange(bridge, [{"task_id": found["task_id"], "action": "complete"}])
    assert "w-2" == (await answer(store, run_id)).worker_id


@pytest.mark.parametrize(
    ("body", "problems"),
    [
        ({}, ["resolve is required"]),
        ({"resolve": {}}, ["resolve must be an array, not an object"]),
        ({"resolve": [{"action": "complete"}]}, ["resolve[0] must be an object with a task_id that is a string"]),
        ({"resolve": [7]}, ["resolve[0] must be an object with a task_id that is a string"]),
        (
            {"resolve": [], "worker_id": "a b"},
            ['worker_id "a b" may hold only A-Z a-z 0-9 _ - and single dots between them'],
        ),
        ({"resolve": [], "pol": 1}, ['unknown field "pol"']),
        ({"resolve": [], "poll": 7}, ["poll must be an object, not a number"]),
        ({"resolve": [], "poll": {}}, ["task_types is required", "max_tasks is required", "timeout_ms is required"]),
        ({"resolve": [], "poll": asking("t", True)}, ["timeout_ms must be a whole number, not true"]),
        (
            {"resolve": [], "poll": asking("penstock.http")},
            ['task type "penstock.http" is reserved: `penstock worker http` serves it'],
        ),
        (
            {"resolve": [], "poll": {**asking("t"), "max_tasks": 0}},
            ["max_tasks must be a whole number from 1 to 1000, not 0"],
        ),
        (
            {"resolve": [{}] * (POLL_TASKS_MAX + 1)},
            [f"resolve has {POLL_TASKS_MAX + 1} entries, {POLL_TASKS_MAX} is the most"],
        ),
    ],
)
async def test_bad_exchange_names_every_offender(
    bridge: httpx2.AsyncClient, body: dict[str, Any], problems: list[str]
) -> None:
    found = await bridge.post("/v1/tasks/exchange", json=body)
    assert (400, problems) == (found.status_code, found.text.splitlines())


async def test_nothing_of_an_exchange_with_a_wrong_poll_is_done(
    store: Store, bridge: httpx2.AsyncClient, task: str
) -> None:
    await dispatch(store, task)
    held = await polled(bridge, task)
    body = {"resolve": [{"task_id": held["task_id"], "action": "complete"}], "poll": asking(task, 60_001)}
    assert 400 == (await bridge.post("/v1/tasks/exchange", json=body)).status_code
    assert 200 == (await resolve(bridge, held, "complete")).status_code
    assert [] == await poll(bridge, task, timeout_ms=0)
