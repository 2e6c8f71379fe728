"""Dead letters: what failed for good, and nothing of it unseen."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from falcon.testing import ASGIConductor
from uuid_utils import uuid4, uuid7

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.shard import Shard
from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.broker.streams import dead_letters
from penstock.broker.worker_messages import TaskPayload
from penstock.config.settings import BrokerSettings
from penstock.engine.run.state import RunStatus
from tests.support.world import Echo, chain, echo, ended, start


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


@pytest.fixture
def name() -> str:
    """A workflow and, with `.echo` behind it, a task type of the test's own."""
    return f"w{uuid4().hex}"


async def refuse(worker: Echo, task: TaskPayload) -> None:
    await worker.fail(task, f"no paper\nfor {task.step_id}", "non_retriable")


async def test_a_failed_task_is_listed_and_shown_with_its_payload(
    http: ASGIConductor, store: Store, shard: Shard, name: str
) -> None:
    async with echo(store, f"{name}.echo", refuse):
        run_id = await start(store, chain(name), b'{"n":1}')
        await ended(store, run_id)
    [dead_letter] = (await http.simulate_get(f"/dead-letters?run={run_id}")).json
    assert ("task", run_id, "s0", f"{name}.echo", 1) == tuple(
        dead_letter[key] for key in ("kind", "run_id", "step_id", "task", "attempts")
    )
    assert ("no paper for s0", f"task.{name}.echo.{run_id}") == (dead_letter["error"], dead_letter["subject"])
    assert "payload" not in dead_letter
    shown = (await http.simulate_get(f"/dead-letters/{dead_letter['seq']}")).json
    assert dead_letter == {key: value for key, value in shown.items() if key != "payload"}
    assert (f"{run_id}.s0", {"n": 1}, 1) == tuple(shown["payload"][key] for key in ("task_id", "input", "attempt"))
    short = (await http.simulate_get(f"/dead-letters/{dead_letter['seq']}?payload_max=1")).json
    assert {**dead_letter, "payload_bytes": short["payload_bytes"]} == short
    assert short["payload_bytes"] > len('{"n":1}')


async def test_every_failed_task_is_readable_before_its_run_shows_failed(
    http: ASGIConductor, store: Store, shard: Shard, name: str
) -> None:
    """Each run is watched by its events: at the one that fails it, its letter must be there."""

    async def watched(run_id: str) -> None:
        async for stored in store.history.follow(run_id):
            if stored is not None and b'"workflow.failed"' in stored.data:
                assert 1 == len((await http.simulate_get(f"/dead-letters?run={run_id}")).json)
                return
            run = (await http.simulate_get(f"/runs/{run_id}")).json
            assert run["status"] != "failed" or (await http.simulate_get(f"/dead-letters?run={run_id}")).json

    async with echo(store, f"{name}.echo", refuse), asyncio.timeout(30), asyncio.TaskGroup() as group:
        for _ in range(30):
            group.create_task(watched(await start(store, chain(name))))


async def test_a_replayed_dead_letter_resumes_its_run_and_is_removed(
    http: ASGIConductor, store: Store, shard: Shard, name: str
) -> None:
    broken = True

    async def answer(worker: Echo, task: TaskPayload) -> None:
        await (refuse(worker, task) if broken and task.step_id == "s1" else worker.complete(task))

    async with echo(store, f"{name}.echo", answer):
        run_id = await start(store, chain(name), b"17")
        await ended(store, run_id)
        [dead_letter] = (await http.simulate_get(f"/dead-letters?run={run_id}")).json
        broken = False
        replayed = await http.simulate_post(f"/dead-letters/{dead_letter['seq']}/replay")
        assert (200, {"run_id": run_id, "status": "running"}) == (replayed.status_code, replayed.json)
        run = await ended(store, run_id)
    assert (RunStatus.COMPLETED, 2, b"17") == (run.status, run.steps["s1"].attempts, bytes(run.steps["s2"].output))
    assert 404 == (await http.simulate_get(f"/dead-letters/{dead_letter['seq']}")).status_code
    assert 404 == (await http.simulate_post(f"/dead-letters/{dead_letter['seq']}/replay")).status_code


async def test_a_dead_letter_of_a_run_that_has_not_failed_cannot_be_replayed(
    http: ASGIConductor, store: Store, name: str
) -> None:
    run_id = await start(store, chain(name))
    seq = await _task_letter(store, run_id, name)
    answer = await http.simulate_post(f"/dead-letters/{seq}/replay")
    assert (409, f"run {run_id} is running, only a failed one can be resumed\n") == (answer.status_code, answer.text)
    gone = uuid7().hex
    answer = await http.simulate_post(f"/dead-letters/{await _task_letter(store, gone, name)}/replay")
    assert 409 == answer.status_code
    assert f"run {gone} does not exist" in answer.text


async def test_a_malformed_event_is_kept_as_base64_and_cannot_be_replayed(http: ASGIConductor, store: Store) -> None:
    run_id, body = uuid7().hex, b"\xff{no json"
    await store.dead_letters.send_history(run_id, 4711, body, "broken\r\nby ü")
    [dead_letter] = (await http.simulate_get(f"/dead-letters?run={run_id}")).json
    assert ("history", "broken  by ü", run_id) == (dead_letter["kind"], dead_letter["error"], dead_letter["run_id"])
    shown = (await http.simulate_get(f"/dead-letters/{dead_letter['seq']}")).json
    assert body == base64.b64decode(shown["payload_base64"])
    answer = await http.simulate_post(f"/dead-letters/{dead_letter['seq']}/replay")
    assert (409, f"dead letter {dead_letter['seq']} is of a history, only those of tasks can be replayed\n") == (
        answer.status_code,
        answer.text,
    )


async def test_what_came_to_a_trigger_in_vain_is_there_too(http: ASGIConductor, store: Store, name: str) -> None:
    await store.dead_letters.store_trigger_event(name, "event.x", b"[1]", uuid4().hex, "input must be an object")
    [dead_letter] = [
        dead_letter
        for dead_letter in (await http.simulate_get("/dead-letters")).json
        if dead_letter.get("trigger") == name
    ]
    assert ("trigger", "event.x", "input must be an object") == (
        dead_letter["kind"],
        dead_letter["subject"],
        dead_letter["error"],
    )
    assert [1] == (await http.simulate_get(f"/dead-letters/{dead_letter['seq']}")).json["payload"]
    assert 409 == (await http.simulate_post(f"/dead-letters/{dead_letter['seq']}/replay")).status_code


async def test_a_discarded_dead_letter_is_removed_and_the_others_are_not(
    http: ASGIConductor, store: Store, name: str
) -> None:
    first, second = [await _task_letter(store, uuid7().hex, name) for _ in range(2)]
    answer = await http.simulate_delete(f"/dead-letters/{first}")
    assert (200, {"seq": first, "status": "discarded"}) == (answer.status_code, answer.json)
    for method in ("GET", "DELETE"):
        assert 404 == (await http.simulate_request(method, f"/dead-letters/{first}")).status_code
    assert 200 == (await http.simulate_get(f"/dead-letters/{second}")).status_code


@pytest.mark.parametrize("seq", ["0", "x", "-1", "1.5", "9" * 30, str(2**63), str(2**62), "%C2%B2"])
async def test_what_is_no_dead_letter_is_not_found(http: ASGIConductor, seq: str) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/replay")):
        answer = await http.simulate_request(method, f"/dead-letters/{seq}{path}")
        assert 404 == answer.status_code
        assert "does not exist" in answer.text


async def test_a_list_is_newest_first_and_its_links_lead_through_all(
    http: ASGIConductor, store: Store, name: str
) -> None:
    seqs = [await _task_letter(store, uuid7().hex, name) for _ in range(25)]
    for seq in seqs[3:6]:
        await http.simulate_delete(f"/dead-letters/{seq}")
    pages = await _pages(http, f"/dead-letters?task={name}&limit=4")
    assert [4, 4, 4, 4, 4, 2] == [len(page) for page in pages if page]
    assert [seq for seq in reversed(seqs) if seq not in seqs[3:6]] == [
        dead_letter["seq"] for page in pages for dead_letter in page
    ]


async def test_filters_take_the_very_run_and_the_very_task(http: ASGIConductor, store: Store, name: str) -> None:
    mine, other = uuid7().hex, uuid7().hex
    wanted = [await _task_letter(store, run_id, name) for run_id in (mine, other)]
    longer = await _task_letter(store, mine, f"{name}.more")
    assert wanted[::-1] == await _seqs(http, f"/dead-letters?task={name}")
    assert [longer] == await _seqs(http, f"/dead-letters?task={name}.more")
    assert [longer, wanted[0]] == await _seqs(http, f"/dead-letters?run={mine}")
    assert [wanted[0]] == await _seqs(http, f"/dead-letters?run={mine}&task={name}")
    assert [] == await _seqs(http, f"/dead-letters?run={uuid7().hex}&task={name}")


async def test_a_page_costs_no_more_than_a_bound_and_the_next_goes_on(
    store: Store, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "SCANNED_MAX", 10)
    oldest = await _task_letter(store, uuid7().hex, name)
    for _ in range(25):
        await _task_letter(store, uuid7().hex, f"{name}.other")
    found, before, pages = list[int](), None, 0
    while not found:
        page = await store.dead_letters.page(task=name, limit=3, before=before)
        found, before, pages = [dead_letter.seq for dead_letter in page.dead_letters], page.next, pages + 1
    assert ([oldest], 3) == (found, pages)


BAD = {
    "run=x": "run must be a run id",
    "task=a..b": "task",
    "limit=0": "limit must be a whole number from 1 to 1000",
    "limit=1001": "limit must be",
    "cursor=x": "cursor must be",
    "colour=red": 'unknown query parameter "colour"',
}


@pytest.mark.parametrize("query", BAD)
async def test_a_bad_filter_is_refused_and_named(http: ASGIConductor, query: str) -> None:
    answer = await http.simulate_get(f"/dead-letters?{query}")
    assert 400 == answer.status_code
    assert BAD[query] in answer.text


async def test_an_empty_stream_is_an_empty_list(http: ASGIConductor, store: Store) -> None:
    await store.broker.api(f"STREAM.PURGE.{names.DEAD}")
    answer = await http.simulate_get("/dead-letters")
    assert (200, [], None) == (answer.status_code, answer.json, answer.headers.get("link"))


async def _task_letter(store: Store, run_id: str, task: str) -> int:
    """A letter as the engine writes it; its sequence."""
    body = orjson.dumps({"task_id": f"{run_id}.a.b", "run_id": run_id, "step_id": "a.b"})
    headers = {
        "Dead-Error": "x",
        "Dead-Attempts": "2",
        "Dead-Run": run_id,
        "Dead-Step": "a.b",
        "Dead-Subject": "task.x",
    }
    answer = await store.publisher.send(names.dead_subject(task, run_id, "a.b"), body, headers)
    return int(orjson.loads(answer)["seq"])


async def _seqs(http: ASGIConductor, path: str) -> list[int]:
    return [dead_letter["seq"] for dead_letter in (await http.simulate_get(path)).json]


async def _pages(http: ASGIConductor, path: str) -> list[list[dict[str, Any]]]:
    pages = []
    while path:
        answer = await http.simulate_get(path)
        pages.append(answer.json)
        path = answer.headers.get("link", "<>").partition(">")[0].removeprefix("<")
    return pages
