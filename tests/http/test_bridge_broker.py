"""The bridge while its broker is away, and after it has forgotten what it had only in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from penstock.broker import names
from penstock.broker.records import leases
from penstock.broker.records.leases import Lease
from penstock.broker.store import Store, open_store
from penstock.broker.streams import history
from penstock.broker.streams.provisioning import provision
from penstock.broker.worker_protocol.bridge_messages import PollTasks
from penstock.config.settings import HttpSettings, Settings
from penstock.engine.errors import NotFound, Unavailable
from penstock.http.app import create_app
from penstock.http.bridge import leases as held_leases
from penstock.http.bridge.requests import Action, CompleteAction, HeartbeatAction
from penstock.http.bridge.service import Bridge, open_bridge
from penstock.http.messages.presence import Presence
from tests.http.bridge import TOKEN, client, is_polled, leased, poll, polled, resolve
from tests.support.conductor import Conductor
from tests.support.frontends import front_ends
from tests.support.little_room import FULL, fill, make_room, small_broker
from tests.support.own_broker import OwnBroker, own_broker
from tests.support.waiting import until, until_true
from tests.support.world import chain, start
from tests.worker.task_queue import answer, dispatch, output_of

EVENT_AND_REMOVAL = 2  # messages of an answer


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OwnBroker]:
    with own_broker(tmp_path) as running:
        yield running


@pytest.fixture
async def store(broker: OwnBroker) -> AsyncIterator[Store]:
    async with open_store(broker.settings, "test") as opened:
        await provision(opened.broker, broker.settings)
        yield opened


@pytest.fixture
async def https(store: Store, broker: OwnBroker) -> AsyncIterator[list[httpx2.AsyncClient]]:
    with front_ends(broker.settings, 2, TOKEN) as ends:
        async with client(ends[0].url) as first, client(ends[1].url) as second:
            yield [first, second]


async def restarted(broker: OwnBroker, https: list[httpx2.AsyncClient]) -> None:
    """By SIGKILL; returns once the front ends are connected again."""
    await asyncio.to_thread(broker.kill)
    for http in https:
        assert 503 == (await until_status(http, 503)).status_code
    await asyncio.to_thread(broker.start)
    for http in https:
        await until_status(http, 200)


async def until_status(http: httpx2.AsyncClient, status: int) -> httpx2.Response:
    async def find() -> httpx2.Response | None:
        found = await http.get("/workflows")
        return found if found.status_code == status else None

    found = await until(find)
    assert found is not None
    return found


async def test_leases_survive_a_broker_that_forgot_them(
    broker: OwnBroker, store: Store, https: list[httpx2.AsyncClient], task: str
) -> None:
    run_ids = [await dispatch(store, task) for _ in range(3)]
    tasks = [await polled(https[0], task) for _ in range(3)]
    assert 200 == (await resolve(https[0], tasks[0], "complete", output=0)).status_code
    for one in tasks[1:]:
        await leased(store, one)
    await restarted(broker, https)

    async def kept() -> bool:
        with suppress(Unavailable):
            return await store.leases.get(tasks[1]["task_id"]) is not None
        return False

    await until(kept)
    await until(lambda: _resolved(https[0], tasks[1], 1))
    await until(lambda: _resolved(https[1], tasks[2], 2))
    outputs = {run_id: output_of(await answer(store, run_id)) for run_id in run_ids}
    assert {one["run_id"]: number for number, one in enumerate(tasks)} == outputs

    async def forgotten() -> bool:
        """Not at once: it might be a lease that its holder has yet to put back."""
        found = (await resolve(https[1], tasks[0], "complete")).status_code
        assert found in (404, 503)
        return found == 404

    await until(forgotten)


async def test_without_a_broker_every_question_is_503_and_later_counts(
    broker: OwnBroker, store: Store, https: list[httpx2.AsyncClient], task: str
) -> None:
    await dispatch(store, task)
    found = await polled(https[0], task)
    waiting = asyncio.create_task(
        https[1].post("/v1/tasks/poll", json={"task_types": [task], "max_tasks": 1, "timeout_ms": 60_000})
    )
    await is_polled(store, task)
    await asyncio.to_thread(broker.kill)
    await until_status(https[0], 503)
    for action in ("complete", "checkpoint", "pause", "heartbeat"):
        refused = await resolve(https[0], found, action, data=1, duration_ms=1)
        assert (503, "1") == (refused.status_code, refused.headers["retry-after"])
    body = {"task_types": [task], "max_tasks": 1, "timeout_ms": 0}
    assert 503 == (await https[0].post("/v1/tasks/poll", json=body)).status_code
    assert (
        503 == (await https[0].post("/v1/workers/connect", json={"worker_id": "w", "task_types": [task]})).status_code
    )
    await asyncio.to_thread(broker.start)
    await until_status(https[0], 200)
    await until(lambda: _resolved(https[0], found))
    run_id = await dispatch(store, task)
    outlived = await waiting
    assert 200 == outlived.status_code, outlived.text
    assert run_id == outlived.json()[0]["run_id"]
    assert [] == await poll(https[0], task, timeout_ms=0)


async def test_a_lease_that_is_not_restored_yet_is_unavailable_and_never_unknown(
    broker: OwnBroker, store: Store, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes, and whoever else has restored more leases by then. It is tried again at once."""
    monkeypatch.setattr(leases, "RESTORE_S", 0.0)
    monkeypatch.setattr(held_leases, "RESTORE_AGAIN_S", 0.02)
    monkeypatch.setattr(held_leases, "ACK_WAIT_S", 1000.0)
    monkeypatch.setattr(held_leases.HeldLeases, "answer_within", lambda *_: None)
    restore, may = held_leases.restore_leases, asyncio.Event()

    async def late(*args: Any) -> None:
        if not may.is_set():
            raise Unavailable("not yet")
        await restore(*args)

    async with open_store(broker.settings, "bridge") as own, open_bridge(own, broker.settings) as bridge:
        first, second = [await assigned(store, bridge, task) for _ in range(2)]
        monkeypatch.setattr(held_leases, "restore_leases", late)
        await asyncio.to_thread(broker.kill)
        await until_true(lambda: not own.broker.connected)
        await asyncio.to_thread(broker.start)
        await until_true(lambda: own.broker.connected and store.broker.connected)
        await restore(store.broker, broker.settings)
        for number in range(9):
            await store.leases.send(Lease(f"other-{number}", "s", 1, 0, "nowhere", "w", 0.0))
        await bridge._held._check(list(bridge._held._held.values()), 0.0)
        for _ in range(2):
            for action in (CompleteAction(b"1"), HeartbeatAction()):
                with pytest.raises(Unavailable):
                    await bridge.resolver.resolve(first, action, b"")
        may.set()
        await until(lambda: _carried_out(bridge, first, CompleteAction(b"2")))
        await bridge.resolver.resolve(second, HeartbeatAction(), b"")
        assert await store.leases.get(second) is not None
        with pytest.raises(NotFound):
            await bridge.resolver.resolve(first, CompleteAction(b"3"), b"")


async def test_an_answer_during_which_the_broker_forgets_its_lease_may_be_given_again(
    broker: OwnBroker, store: Store, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RESTORE_S", 0.0)
    async with open_store(broker.settings, "bridge") as own, open_bridge(own, broker.settings) as bridge:
        task_id = await assigned(store, bridge, task)
        await broker.freeze()
        answered = asyncio.create_task(_carried_out(bridge, task_id, CompleteAction(b"1")))
        await until_true(lambda: own.publisher.in_flight >= EVENT_AND_REMOVAL)
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        if not await answered:
            await until(lambda: _carried_out(bridge, task_id, CompleteAction(b"1")))


async def assigned(store: Store, bridge: Bridge, task: str) -> str:
    """The id of a task that the bridge has just assigned, once its lease is stored."""
    await dispatch(store, task)
    (one,) = await bridge.poll(PollTasks([task], 1, 10_000), Presence())
    bridge._starts.report(one.task_id)
    assert await bridge._held.get(one.task_id) is not None
    return one.task_id


async def _carried_out(bridge: Bridge, task_id: str, action: Action) -> bool:
    """Whether it is; not while the leases are being put back."""
    try:
        await bridge.resolver.resolve(task_id, action, b"")
    except Unavailable:
        return False
    return True


async def test_a_signal_that_cannot_be_written_to_its_run_is_503_in_time(
    broker: OwnBroker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log acknowledges nothing while the bucket of signals does: without a deadline, that would be waited for
    without end."""
    monkeypatch.setattr(history, "PUBLISH_DEADLINE_S", 0.2)
    run_id = await start(store, chain("signalled"))
    config = (await store.broker.api(f"STREAM.INFO.{names.HISTORY}"))["config"]
    await store.broker.api(f"STREAM.UPDATE.{names.HISTORY}", {**config, "no_ack": True})
    settings = Settings(broker=broker.settings, http=HttpSettings(bridge_token=TOKEN))
    async with Conductor(create_app(settings)) as app:
        path, headers = f"/v1/runs/{run_id}/signals/go", {"Authorization": f"Bearer {TOKEN}"}
        async with asyncio.timeout(10):
            refused = await app.simulate_post(path, body=b"1", headers=headers)
            assert (503, "1") == (refused.status_code, refused.headers["retry-after"])
            await store.broker.api(f"STREAM.UPDATE.{names.HISTORY}", config)
            assert 200 == (await app.simulate_post(path, body=b"1", headers=headers)).status_code


async def _resolved(http: httpx2.AsyncClient, task: dict[str, Any], output: Any = "at last") -> bool:
    """Whether it is; not while the leases are being put back."""
    status = (await resolve(http, task, "complete", output=output)).status_code
    assert status in (200, 503)
    return status == 200


async def test_a_front_end_that_starts_after_the_broker_forgot_the_leases_makes_their_bucket(
    broker: OwnBroker, store: Store, task: str
) -> None:
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.start)
    await dispatch(store, task)
    with front_ends(broker.settings, 1, TOKEN) as ends:
        async with client(ends[0].url) as http:
            found = await polled(http, task)
            assert 200 == (await resolve(http, found, "complete", output=1)).status_code


async def test_an_answer_that_finds_no_room_is_refused_and_may_be_given_again(tmp_path: Path, task: str) -> None:
    with small_broker(tmp_path) as small:
        async with open_store(small.settings, "test") as store:
            await provision(store.broker, small.settings)
            await dispatch(store, task)
            with front_ends(small.settings, 1, TOKEN) as ends:
                async with client(ends[0].url) as http:
                    found = await polled(http, task)
                    await fill(store)
                    for _ in range(2):
                        refused = await resolve(http, found, "complete", output="late")
                        assert (503, f"{FULL}\n") == (refused.status_code, refused.text)
                    await make_room(store)
                    assert 200 == (await resolve(http, found, "complete", output="late")).status_code
                    assert 404 == (await resolve(http, found, "complete", output="later")).status_code
            assert "late" == output_of(await answer(store, found["run_id"]))
