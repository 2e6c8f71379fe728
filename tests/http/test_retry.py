"""Failed runs in bulk: started again with their inputs, or resumed at what failed. A shard runs them to their ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor, Result
from uuid_utils import uuid4

from penstock.actors.control import run_operations
from penstock.actors.control.run_operations import now
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.shard import Shard
from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import BATCH_BYTES_MAX, PAYLOAD_BYTES_MAX
from penstock.config.settings import BrokerSettings
from penstock.engine.run.commands import RemoveDeadLetters
from penstock.engine.run.event_payloads import Failure, Resumed, RunFailure
from penstock.engine.run.events import Event, StepFailed, WorkflowFailed, WorkflowResumed, decode
from penstock.engine.run.state import RunStatus
from penstock.engine.run.still_due import still_due
from tests.support.world import Echo, chain, echo, ended, register

pytestmark = pytest.mark.usefixtures("index")


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


@pytest.fixture
async def workflow(store: Store) -> str:
    """Three steps of the test's own, s0 to s2."""
    name = f"w{uuid4().hex}"
    await register(store, chain(name))
    return name


class World:
    """Workers of one workflow, whose step s1 fails for good until it is mended."""

    def __init__(self, store: Store, workflow: str) -> None:
        self.store, self.task = store, f"{workflow}.echo"
        self.broken = True
        self.seen: list[str] = []

    async def answer(self, worker: Echo, task: TaskPayload) -> None:
        self.seen.append(f"{task.run_id}.{task.step_id}.{task.attempt}")
        if self.broken and task.step_id == "s1":
            await worker.fail(task, "no paper", "non_retriable")
        else:
            await worker.complete(task)


@pytest.fixture
async def world(store: Store, shard: Shard, workflow: str) -> AsyncIterator[World]:
    found = World(store, workflow)
    async with echo(store, found.task, World.answer.__get__(found)):
        yield found


async def test_replay_resumes_the_run_at_its_failed_step(
    http: ASGIConductor, store: Store, world: World, workflow: str
) -> None:
    run_ids = await _failed(http, store, workflow, 3)
    assert {"s1"} == {dead_letter["step_id"] for dead_letter in await _letters(http, run_ids)}
    world.broken = False
    answer = await _retry(http, workflow_id=workflow, mode="replay")
    assert ([{"original_run_id": run_id} for run_id in run_ids], [], 3, False) == _result(answer)
    for run_id in run_ids:
        run = await ended(store, run_id)
        assert (RunStatus.COMPLETED, None) == (run.status, run.error)
        assert [f"{run_id}.s0.1", f"{run_id}.s1.1", f"{run_id}.s1.2", f"{run_id}.s2.1"] == [
            one for one in world.seen if run_id in one
        ]
        [resumed] = [event for event in await _events(store, run_id) if isinstance(event, WorkflowResumed)]
        assert ("s1",) == resumed.payload.steps
    assert [] == await _letters(http, run_ids)
    assert ([], [], 0, False) == _result(await _retry(http, workflow_id=workflow, mode="replay"))


async def test_a_run_that_fails_again_is_replayed_again(
    http: ASGIConductor, store: Store, world: World, workflow: str
) -> None:
    [run_id] = await _failed(http, store, workflow, 1)
    await _retry(http, workflow_id=workflow, mode="replay")
    assert RunStatus.FAILED is (await ended(store, run_id)).status
    [dead_letter] = await _letters(http, [run_id])
    assert 2 == dead_letter["attempts"]
    world.broken = False
    await _retry(http, workflow_id=workflow, mode="replay")
    assert RunStatus.COMPLETED is (await ended(store, run_id)).status
    assert [] == await _letters(http, [run_id])


async def test_the_engine_removes_the_dead_letters_of_a_run_whose_replay_was_interrupted(
    http: ASGIConductor, store: Store, world: World, workflow: str
) -> None:
    """And no others: not that of another run, nor that of the same step's later failure."""
    [run_id, other] = await _failed(http, store, workflow, 2)
    letters = {dead_letter["run_id"]: dead_letter["seq"] for dead_letter in await _letters(http, [run_id, other])}
    resumed = Resumed(steps=("s1",), dead_letters=await store.dead_letters.last_seq())
    await store.history.append(WorkflowResumed(run_id=run_id, timestamp=now(), payload=resumed))
    assert RunStatus.FAILED is (await ended(store, run_id)).status
    [later] = await _letters(http, [run_id])
    assert (2, True) == (later["attempts"], later["seq"] > letters[run_id])
    assert [letters[other]] == [dead_letter["seq"] for dead_letter in await _letters(http, [other])]


async def test_removing_dead_letters_twice_leaves_that_of_a_later_failure(
    http: ASGIConductor, store: Store, shard: Shard, world: World, workflow: str
) -> None:
    """As after the death of a shard that had removed them, and had not yet written that down."""
    [run_id] = await _failed(http, store, workflow, 1)
    up_to = await store.dead_letters.last_seq()
    await _retry(http, workflow_id=workflow, mode="replay")
    run = await ended(store, run_id)
    again = RemoveDeadLetters("s1", world.task, up_to)
    assert still_due(run, again)
    await shard.effects.perform(workflow, run, [again], 0.0)
    assert [2] == [letter["attempts"] for letter in await _letters(http, [run_id])]


async def test_of_many_that_replay_one_run_exactly_one_resumes_it(
    http: ASGIConductor, store: Store, workflow: str
) -> None:
    [run_id] = await _failed_by_hand(http, store, workflow, 1)
    answers = await asyncio.gather(*(_retry(http, workflow_id=workflow, mode="replay") for _ in range(20)))
    assert 1 == sum(len(answer.json["retried"]) for answer in answers)
    for answer in answers:
        for skipped in answer.json["skipped"]:
            assert run_id == skipped["run_id"]
            assert skipped["reason"] in (
                f"run {run_id} is running, only a failed one can be resumed",
                f"run {run_id} has just changed: read it again, then retry",
            )
    assert 1 == sum(isinstance(event, WorkflowResumed) for event in await _events(store, run_id))


async def test_rerun_starts_new_runs_with_the_original_inputs(
    http: ASGIConductor, store: Store, world: World, workflow: str
) -> None:
    run_ids = await _failed(http, store, workflow, 3)
    world.broken = False
    answer = await _retry(http, workflow_id=workflow, mode="rerun")
    retried, skipped, total, _ = _result(answer)
    assert (run_ids, [], 3) == ([one["original_run_id"] for one in retried], skipped, total)
    assert 3 == len({one["new_run_id"] for one in retried} - set(run_ids))
    for one in retried:
        new, original = (
            await ended(store, one["new_run_id"]),
            (await http.simulate_get(f"/runs/{one['original_run_id']}")).json,
        )
        assert (RunStatus.COMPLETED, original["input"]) == (new.status, orjson.loads(bytes(new.input)))
        assert one["original_run_id"] == (await http.simulate_get(f"/runs/{new.run_id}")).json["rerun_of"]
        assert "failed" == original["status"]


async def test_rerun_takes_the_latest_definition_and_skips_inputs_that_it_refuses(
    http: ASGIConductor, store: Store, workflow: str
) -> None:
    good, bad = (
        await _failed_by_hand(http, store, workflow, 1, {"n": 1}),
        await _failed_by_hand(http, store, workflow, 1, {"n": "x"}),
    )
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    await register(store, {**chain(workflow), "version": "2", "input_schema": schema})
    for dry_run in (True, False):
        retried, skipped, total, told = _result(await _retry(http, workflow_id=workflow, mode="rerun", dry_run=dry_run))
        assert (good, 2, dry_run) == ([one["original_run_id"] for one in retried], total, told)
        assert bad == [one["run_id"] for one in skipped]
        assert skipped[0]["reason"].startswith("input.n: ")
        assert ("new_run_id" in retried[0]) is not dry_run
    assert "2" == (await http.simulate_get(f"/runs/{retried[0]['new_run_id']}")).json["version"]


async def test_a_rerun_of_many_large_inputs_goes_in_several_batches(
    http: ASGIConductor, store: Store, workflow: str
) -> None:
    value = "x" * (PAYLOAD_BYTES_MAX - 2)
    count = 2 * BATCH_BYTES_MAX // PAYLOAD_BYTES_MAX + 1
    run_ids = await _failed_by_hand(http, store, workflow, count, value)
    before = await store.history.last_seq()
    retried, skipped, total, _ = _result(await _retry(http, workflow_id=workflow, mode="rerun"))
    assert (run_ids, [], count) == ([one["original_run_id"] for one in retried], skipped, total)
    stored = await store.reader.subject(names.HISTORY, "history.*.*", before + 1)
    assert [one["new_run_id"] for one in retried] == [one.subject.rpartition(".")[2] for one in stored]
    assert 3 == len({one.headers.partition(b"Nats-Batch-Id:")[2].split()[0] for one in stored})


@pytest.mark.parametrize("mode", ["rerun", "replay"])
async def test_a_dry_run_lists_what_matches_and_changes_nothing(
    http: ASGIConductor, store: Store, workflow: str, mode: str
) -> None:
    run_ids = await _failed_by_hand(http, store, workflow, 2)
    await http.simulate_post("/runs", body=orjson.dumps({"workflow": workflow}))
    before = await store.history.last_seq()
    answer = await _retry(http, workflow_id=workflow, mode=mode, dry_run=True)
    assert ([{"original_run_id": run_id} for run_id in run_ids], [], 2, True) == _result(answer)
    assert before == await store.history.last_seq()


async def test_bounds_of_creation_belong_to_the_range(http: ASGIConductor, store: Store, workflow: str) -> None:
    _, middle, _ = [(await _failed_by_hand(http, store, workflow, 1))[0] for _ in range(3)]
    at = (await http.simulate_get(f"/runs/{middle}")).json["created_at"]
    retried, *_ = _result(await _retry(http, workflow_id=workflow, mode="rerun", after=at, before=at))
    assert [middle] == [one["original_run_id"] for one in retried]


async def test_a_run_that_failed_by_its_time_goes_on_with_what_was_cancelled(
    http: ASGIConductor, store: Store, workflow: str
) -> None:
    [run_id] = await _started(http, workflow, 1)
    await store.history.append(
        WorkflowFailed(run_id=run_id, timestamp=now(), payload=RunFailure("workflow timeout exceeded (1s)"))
    )
    retried, skipped, *_ = _result(await _retry(http, workflow_id=workflow, mode="replay"))
    assert ([{"original_run_id": run_id}], []) == (retried, skipped)
    run = (await http.simulate_get(f"/runs/{run_id}")).json
    assert ("running", "queued", 0) == (run["status"], run["steps"]["s0"]["status"], run["steps"]["s0"]["attempts"])
    assert 2 == (await run_operations.get(store, run_id)).steps["s0"].attempts, (
        "its second task is out, and nobody has begun one"
    )


@pytest.mark.parametrize("mode", ["rerun", "replay"])
async def test_a_thousand_are_retried_and_one_more_is_too_many(
    http: ASGIConductor, store: Store, workflow: str, mode: str
) -> None:
    run_ids = await _failed_by_hand(http, store, workflow, 1000)
    [extra] = await _failed_by_hand(http, store, workflow, 1)
    before = await store.history.last_seq()
    answer = await _retry(http, workflow_id=workflow, mode=mode)
    assert 400 == answer.status_code
    assert "more than 1000 runs match" in answer.text
    assert before == await store.history.last_seq()
    bound = (await http.simulate_get(f"/runs/{run_ids[0]}")).json["created_at"]
    retried, skipped, total, _ = _result(await _retry(http, workflow_id=workflow, mode=mode, before=bound))
    assert (1000, 1000, []) == (total, len(retried), skipped)
    assert set(run_ids) == {one["original_run_id"] for one in retried}
    assert "failed" == (await http.simulate_get(f"/runs/{extra}")).json["status"]


@pytest.mark.parametrize("mode", ["rerun", "replay"])
async def test_failed_runs_are_retried_in_parts_each_once(
    http: ASGIConductor, store: Store, workflow: str, mode: str
) -> None:
    """Those that were started anew stay failed, and match again: the cursor tells where to go on."""
    run_ids = await _failed_by_hand(http, store, workflow, 5)
    first = (await _retry(http, workflow_id=workflow, mode=mode, limit=3)).json
    second = (await _retry(http, workflow_id=workflow, mode=mode, limit=3, cursor=first["next"])).json
    assert [(3, 2, True), (2, 0, False)] == [
        (part["total"], part["remaining"], "next" in part) for part in (first, second)
    ]
    assert run_ids == sorted(one["original_run_id"] for part in (first, second) for one in part["retried"])


async def test_one_failed_run_goes_on_at_what_failed(
    http: ASGIConductor, store: Store, world: World, workflow: str
) -> None:
    [run_id] = await _failed(http, store, workflow, 1)
    world.broken = False
    answer = await http.simulate_post(f"/runs/{run_id}/retry")
    assert (200, {"original_run_id": run_id}) == (answer.status_code, answer.json)
    assert RunStatus.COMPLETED is (await ended(store, run_id)).status
    again = await http.simulate_post(f"/runs/{run_id}/retry", body=b'{"mode":"replay"}')
    assert (409, f"run {run_id} is completed, only a failed one can be resumed\n") == (again.status_code, again.text)


async def test_one_failed_run_is_started_anew(http: ASGIConductor, store: Store, world: World, workflow: str) -> None:
    [run_id] = await _failed(http, store, workflow, 1)
    world.broken = False
    answer = await http.simulate_post(f"/runs/{run_id}/retry", body=b'{"mode":"rerun"}')
    assert (200, run_id) == (answer.status_code, answer.json["original_run_id"])
    new = await ended(store, answer.json["new_run_id"])
    assert (RunStatus.COMPLETED, b'{"n":0}', run_id) == (new.status, bytes(new.input), new.rerun_of)
    refused = await http.simulate_post(f"/runs/{new.run_id}/retry", body=b'{"mode":"rerun"}')
    assert (409, f"run {new.run_id} is not started again: it is completed\n") == (refused.status_code, refused.text)


async def test_one_failed_run_is_started_anew_once_where_that_is_asked(
    http: ASGIConductor, store: Store, workflow: str
) -> None:
    [run_id] = await _failed_by_hand(http, store, workflow, 1)
    once = b'{"mode":"rerun","once":true}'
    answers = [
        await http.simulate_post(f"/runs/{run_id}/retry", body=body) for body in (once, once, b'{"mode":"rerun"}', once)
    ]
    assert [200, 409, 200, 409] == [answer.status_code for answer in answers]
    assert f"is not started again: already rerun as {answers[0].json['new_run_id']}" in answers[1].text
    assert answers[0].json["new_run_id"] != answers[2].json["new_run_id"]


@pytest.mark.parametrize(
    ("run_id", "body", "status", "told"),
    [
        ("", b"", 400, "the run id is missing"),
        ("x", b"", 404, 'run "x" does not exist'),
        ("0" * 32, b"", 404, "does not exist"),
        ("0" * 32, b'{"mode":"rerun"}', 404, "does not exist"),
        ("0" * 32, b'{"mode":"again"}', 400, "mode must be one of rerun replay"),
        ("0" * 32, b'{"mode":1}', 400, "mode must be a string"),
        ("0" * 32, b'{"force":true}', 400, 'unknown field "force"'),
        ("0" * 32, b"[]", 400, "must be an object"),
    ],
)
async def test_a_bad_retry_of_one_run_is_named(
    http: ASGIConductor, run_id: str, body: bytes, status: int, told: str
) -> None:
    answer = await http.simulate_post(f"/runs/{run_id}/retry", body=body)
    assert (status, True) == (answer.status_code, told in answer.text)


BAD: dict[str, dict[str, Any]] = {
    "no condition: give at least one of workflow_id, ": {"mode": "rerun"},
    "mode is required": {"workflow_id": "one"},
    "mode must be one of rerun replay": {"workflow_id": "one", "mode": "again"},
    '"nobody"': {"workflow_id": "nobody", "mode": "rerun"},
    "after must be a time": {"workflow_id": "one", "mode": "rerun", "after": "x"},
    'unknown field "status"': {"workflow_id": "one", "mode": "rerun", "status": "failed"},
    "limit must be a whole number from 1 to 1000, not -1": {"workflow_id": "one", "mode": "rerun", "limit": -1},
    "cursor goes with limit only": {"workflow_id": "one", "mode": "replay", "cursor": "1.a"},
    "dry_run must be true or false": {"workflow_id": "one", "mode": "rerun", "dry_run": 1},
}


@pytest.mark.parametrize("told", BAD)
async def test_a_bad_request_is_named_and_retries_nothing(http: ASGIConductor, store: Store, told: str) -> None:
    before = await store.history.last_seq()
    answer = await http.simulate_post("/runs/retry", body=orjson.dumps(BAD[told]))
    assert 400 == answer.status_code
    assert told in answer.text
    assert before == await store.history.last_seq()


async def _retry(http: ASGIConductor, **request: Any) -> Result:
    return await http.simulate_post("/runs/retry", body=orjson.dumps(request))


def _result(answer: Result) -> tuple[list[dict[str, str]], list[dict[str, str]], int, bool]:
    """Runs that start or are resumed in one go may be told in any order."""
    found = answer.json
    retried = sorted(found["retried"], key=lambda one: str(one["original_run_id"]))
    return retried, found["skipped"], found["total"], found["dry_run"]


async def _started(http: ASGIConductor, workflow: str, count: int, value: object = None) -> list[str]:
    """In ascending order."""
    if count * len(orjson.dumps(value)) < PAYLOAD_BYTES_MAX:
        request = orjson.dumps({"workflow_id": workflow, "inputs": [value] * count})
        return sorted((await http.simulate_post("/runs/bulk", body=request)).json["run_ids"])
    request = orjson.dumps({"workflow": workflow, "input": value})
    return sorted([(await http.simulate_post("/runs", body=request)).json["run_id"] for _ in range(count)])


async def _failed(http: ASGIConductor, store: Store, workflow: str, count: int) -> list[str]:
    """Runs that failed by a worker, each with an input of its own."""
    run_ids = [(await _started(http, workflow, 1, {"n": n}))[0] for n in range(count)]
    for run_id in run_ids:
        assert RunStatus.FAILED is (await ended(store, run_id)).status
    return run_ids


async def _failed_by_hand(
    http: ASGIConductor, store: Store, workflow: str, count: int, value: object = None
) -> list[str]:
    """Runs whose first step failed, as their logs tell; no engine and no worker had a part in it."""
    run_ids, at = await _started(http, workflow, count, value), now()
    steps = [
        StepFailed(run_id=run_id, step_id="s0", timestamp=at, payload=Failure("no paper", "non_retriable"))
        for run_id in run_ids
    ]
    await store.history.append_all(steps)
    await store.history.append_all(
        [WorkflowFailed(run_id=run_id, timestamp=at, payload=RunFailure("no paper")) for run_id in run_ids]
    )
    return run_ids


async def _letters(http: ASGIConductor, run_ids: Sequence[str]) -> list[dict[str, Any]]:
    return [
        dead_letter
        for run_id in run_ids
        for dead_letter in (await http.simulate_get(f"/dead-letters?run={run_id}")).json
    ]


async def _events(store: Store, run_id: str) -> list[Event]:
    return [decode(stored.data) for stored in await store.history.read(run_id)]
