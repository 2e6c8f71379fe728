"""A worker whose connect stream broke: its tasks are for others after a while, unless it is back or gives a sign of
life."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest

from penstock.broker.store import Store
from penstock.broker.worker_messages import WorkerRegistration
from penstock.broker.worker_protocol.bridge_messages import PollTasks
from penstock.broker.worker_protocol.registrations import register
from penstock.config.settings import BrokerSettings
from penstock.http.bridge import departures, service
from penstock.http.bridge.connection import CancelInbox, heartbeat_stream
from penstock.http.bridge.requests import HeartbeatAction, action_in
from penstock.http.bridge.service import Bridge, open_bridge
from penstock.http.messages.presence import Presence
from tests.http.test_bridge_live import logged
from tests.support.waiting import until, until_true
from tests.worker.task_queue import dispatch

AWAY_S = 0.3


@pytest.fixture
async def bridges(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[Bridge]]:
    """Those of two front-end processes, for which a worker is away after less than ten seconds."""
    monkeypatch.setattr(departures, "SAME_MOMENT_S", 0.0)
    monkeypatch.setattr(service, "BRIDGE_AWAY_S", AWAY_S)
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_bridge(store, broker_settings)) for _ in range(2)]


class Connected(NamedTuple):
    """A worker's open connect stream; `left` breaks it, `over` is set when that is done."""

    left: asyncio.Event
    over: asyncio.Task[None]

    async def leave(self) -> None:
        self.left.set()
        await self.over


async def connected(store: Store, bridge: Bridge, worker_id: str, pid: int = 7) -> Connected:
    entry = WorkerRegistration(worker_id=worker_id, task_types=("t",), hostname="h", pid=pid)
    revision, left, begun = await register(store.workers, entry), asyncio.Event(), asyncio.Event()

    async def stream() -> None:
        async with bridge.departures.stream(entry) as stale:
            async for _ in heartbeat_stream(store.workers, entry, revision, left, stale, CancelInbox(), comment_s=0.05):
                begun.set()

    over = asyncio.create_task(stream())
    await begun.wait()
    return Connected(left, over)


async def polled(store: Store, bridge: Bridge, task: str, worker_id: str | None) -> str:
    """The id of a task that the worker holds from now on."""
    await dispatch(store, task)
    (found,) = await bridge.poll(PollTasks([task], 1, 5000, worker_id), Presence())
    await until_true(lambda: found.task_id in bridge._held._held)
    return found.task_id


async def given_back(bridge: Bridge, task_id: str) -> None:
    await until_true(lambda: task_id not in bridge._held._held, 10)


@pytest.mark.parametrize("holding", [0, 1])
async def test_tasks_of_a_worker_that_left_are_for_others_whichever_process_had_its_stream(
    store: Store, bridges: list[Bridge], task: str, holding: int
) -> None:
    stream = await connected(store, bridges[0], "w-1")
    task_id = await polled(store, bridges[holding], task, "w-1")
    left_at = time.monotonic()
    await stream.leave()
    (again,) = await bridges[1 - holding].poll(PollTasks([task], 1, 20_000, "w-2"), Presence())
    assert (task_id, 2) == (again.task_id, again.deliveries)
    assert time.monotonic() - left_at >= AWAY_S


async def test_tasks_stay_with_a_worker_that_is_back_or_gives_a_sign_of_life(
    store: Store, bridges: list[Bridge], task: str
) -> None:
    """A third one leaves after them: when that is noticed, what they did has counted."""
    streams = [await connected(store, bridges[0], f"w-{number}") for number in range(3)]
    task_ids = [await polled(store, bridges[1], task, f"w-{number}") for number in range(3)]
    for stream in streams:
        await stream.leave()
    back = await connected(store, bridges[1], "w-0")
    await bridges[0].resolver.resolve(task_ids[1], HeartbeatAction(), b'{"action": "heartbeat"}')
    await given_back(bridges[1], task_ids[2])
    assert set(task_ids[:2]) <= bridges[1]._held._held.keys()
    await back.leave()
    await given_back(bridges[1], task_ids[0])


@pytest.mark.parametrize("front_end", [0, 1])
async def test_what_a_worker_says_of_a_task_that_it_has_lost_is_kept_while_no_other_has_it(
    store: Store, bridges: list[Bridge], task: str, front_end: int
) -> None:
    """As its answer would be: the worker carries the task out, and does not know that it was given back."""
    stream = await connected(store, bridges[0], "w-1")
    task_id = await polled(store, bridges[1], task, "w-1")
    await stream.leave()
    await given_back(bridges[1], task_id)
    body = b'{"action": "log", "data": [{"text": "still here"}]}'
    await bridges[front_end].resolver.resolve(task_id, action_in(body), body)
    assert ["still here"] == [line.text for line in await logged(store, task_id.partition(".")[0])]


async def test_another_process_under_the_same_id_is_not_the_worker_that_left(
    store: Store, bridges: list[Bridge], task: str
) -> None:
    former = await connected(store, bridges[0], "w-1", pid=7)
    task_id = await polled(store, bridges[1], task, "w-1")
    await former.leave()
    successor = await connected(store, bridges[0], "w-1", pid=8)
    await given_back(bridges[1], task_id)
    await successor.leave()


async def test_one_of_two_streams_of_a_worker_is_enough(store: Store, bridges: list[Bridge], task: str) -> None:
    """The one that registered last ends, and takes the registration along: the other writes it again."""
    first, second = await connected(store, bridges[0], "w-1"), await connected(store, bridges[1], "w-1")
    marker = await connected(store, bridges[0], "marker")
    kept, other = await polled(store, bridges[1], task, "w-1"), await polled(store, bridges[1], task, "marker")
    await second.leave()

    async def registered() -> bool:
        return await store.workers.get("w-1") is not None

    await until(registered)
    await marker.leave()
    await given_back(bridges[1], other)
    assert kept in bridges[1]._held._held
    await first.leave()
    await given_back(bridges[1], kept)


async def test_worker_whose_registration_expired_has_left(store: Store, bridges: list[Bridge], task: str) -> None:
    """As when the process that had the stream died with the worker."""
    await register(store.workers, WorkerRegistration(worker_id="w-1", task_types=("t",)))
    task_id = await polled(store, bridges[0], task, "w-1")
    await bridges[0].departures.compare()
    await store.workers.delete("w-1")
    await given_back(bridges[0], task_id)


async def test_workers_without_a_stream_keep_their_tasks(store: Store, bridges: list[Bridge], task: str) -> None:
    never, nameless = await polled(store, bridges[0], task, "w-2"), await polled(store, bridges[0], task, None)
    stream = await connected(store, bridges[0], "w-1")
    other = await polled(store, bridges[0], task, "w-1")
    await stream.leave()
    await given_back(bridges[0], other)
    assert {never, nameless} <= bridges[0]._held._held.keys()
