"""What is told of polled tasks, and when: the start of a step goes with a quick answer, or before anything else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from penstock.broker.store import Store
from penstock.broker.worker_protocol.bridge_messages import PolledTask, PollTasks
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import NotFound, TooLarge
from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.events import Event, StepCompleted, StepContinue, StepFailed, StepPaused, StepStarted, decode
from penstock.engine.times import rfc3339
from penstock.http.bridge import queue, starts
from penstock.http.bridge.queue import QueueName
from penstock.http.bridge.requests import (
    Action,
    CheckpointAction,
    CompleteAction,
    ContinueAction,
    FailAction,
    HeartbeatAction,
    PauseAction,
)
from penstock.http.bridge.service import Bridge, open_bridge
from penstock.http.messages.presence import Presence
from tests.http.bridge import frames, leased
from tests.support.waiting import until_true
from tests.worker.task_queue import acknowledged, dispatch, reported, taking

LONG_S = 60.0  # longer than any test


@pytest.fixture
async def bridges(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[Bridge]]:
    """Those of two front-end processes that hold back for longer than any test what they have to tell."""
    monkeypatch.setattr(starts, "HELD_BACK_S", LONG_S)
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_bridge(store, broker_settings)) for _ in range(2)]


async def assigned(store: Store, bridge: Bridge, task: str, **more: Any) -> PolledTask:
    await dispatch(store, task, **more)
    return await polled(bridge, task)


async def polled(bridge: Bridge, task: str) -> PolledTask:
    (found,) = await bridge.poll(PollTasks([task], 1, 10_000, "w-1"), Presence())
    return found


async def told(store: Store, task: PolledTask) -> list[Event]:
    return [decode(stored.data) for stored in await store.history.read(task.run_id)]


async def test_a_quick_answer_is_known_to_the_queue_of_its_task_alone(
    store: Store, bridges: list[Bridge], task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "AHEAD_S", LONG_S)
    found = await assigned(store, bridges[0], task)
    other = await assigned(store, bridges[0], f"{task}.other")
    await bridges[0].resolver.resolve(other.task_id, HeartbeatAction(), b"")
    await bridges[0].resolver.resolve(other.task_id, CompleteAction(b"1"), b"")
    await bridges[0].resolver.resolve(found.task_id, CompleteAction(b"1"), b"")
    queues = bridges[0]._queues._open
    assert 1 == queues[QueueName(task)].result()._room()
    assert 0 == queues[QueueName(f"{task}.other")].result()._room()


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        (CompleteAction(b"1"), StepCompleted),
        (ContinueAction(b"1"), StepContinue),
        (FailAction(Failure("broken")), StepFailed),
    ],
)
async def test_a_quick_answer_says_when_its_execution_began_and_leaves_no_lease(
    store: Store, bridges: list[Bridge], task: str, action: Action, kind: type[Event]
) -> None:
    before = time.time()
    found = await assigned(store, bridges[0], task)
    after = time.time()
    await bridges[0].resolver.resolve(found.task_id, action, b"")
    (event,) = await told(store, found)
    assert isinstance(event, StepCompleted | StepContinue | StepFailed)
    assert isinstance(event, kind)
    assert event.started_at is not None
    assert rfc3339(before) <= event.started_at <= rfc3339(after)
    assert event.started_at <= event.timestamp
    assert (1, "w-1") == (event.delivery, event.worker_id)
    await acknowledged(store, task)
    assert await store.leases.get(found.task_id) is None
    with pytest.raises(NotFound):
        await bridges[0].resolver.resolve(found.task_id, action, b"")


@pytest.mark.parametrize("action", [HeartbeatAction(), CheckpointAction(b"1"), PauseAction(60.0, None, None)])
async def test_the_start_is_told_before_anything_but_an_answer(
    store: Store, bridges: list[Bridge], task: str, action: Action
) -> None:
    found = await assigned(store, bridges[0], task)
    await bridges[0].resolver.resolve(found.task_id, action, b"")
    first, *others = await told(store, found)
    assert isinstance(first, StepStarted)
    assert all(isinstance(event, StepPaused) for event in others)
    if not others:
        await bridges[0].resolver.resolve(found.task_id, CompleteAction(b"1"), b"")
        last = (await told(store, found))[-1]
        assert isinstance(last, StepCompleted)
        assert last.started_at is None


async def test_the_start_and_the_lease_of_a_task_that_takes_longer_are_told_in_time(
    store: Store, bridges: list[Bridge], task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "HELD_BACK_S", 0.025)
    found = await assigned(store, bridges[0], task)
    assert [] == await told(store, found)
    kept = await leased(store, {"task_id": found.task_id})
    (started,) = await reported(store, found.run_id, lambda event: isinstance(event, StepStarted))
    assert rfc3339(kept.lease.seen_at) == started.timestamp
    await bridges[0].resolver.resolve(found.task_id, CompleteAction(b"1"), b"")


async def test_an_answer_that_another_process_gets_is_carried_out_by_the_one_that_assigned_the_task(
    store: Store, bridges: list[Bridge], task: str
) -> None:
    found = await assigned(store, bridges[0], task)
    body = b'{"action": "complete", "output": 7}'
    await bridges[1].resolver.resolve(found.task_id, CompleteAction(b"7"), body)
    first, last = await told(store, found)
    assert isinstance(first, StepStarted)
    assert isinstance(last, StepCompleted)
    await acknowledged(store, task)


async def test_a_later_delivery_is_told_at_once(store: Store, bridges: list[Bridge], task: str) -> None:
    """A former worker may answer it, too, at another process: the lease decides."""
    await dispatch(store, task)
    async with taking(store, task) as taken:
        await (await asyncio.wait_for(taken.get(), 10)).give_back()
    found = await polled(bridges[0], task)
    assert 2 == found.deliveries
    kept = await leased(store, {"task_id": found.task_id})
    assert 2 == kept.lease.deliveries
    (started,) = await reported(store, found.run_id, lambda event: isinstance(event, StepStarted))
    assert isinstance(started, StepStarted)
    assert 2 == started.delivery
    await bridges[0].resolver.resolve(found.task_id, CompleteAction(b"1"), b"")


async def test_a_refused_answer_is_told_of_as_one_that_takes_longer(
    store: Store, bridges: list[Bridge], task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await assigned(store, bridges[0], task)
    send = store.history.send

    def refuse(event: Event, **more: Any) -> asyncio.Future[bytes]:
        if isinstance(event, StepCompleted):
            raise TooLarge("as the broker may say")
        return send(event, **more)

    with monkeypatch.context() as patched:
        patched.setattr(store.history, "send", refuse)
        with pytest.raises(TooLarge):
            await bridges[0].resolver.resolve(found.task_id, CompleteAction(b"1"), b"")
    await leased(store, {"task_id": found.task_id})
    await bridges[0].resolver.resolve(found.task_id, CompleteAction(b"2"), b"")
    first, last = await told(store, found)
    assert isinstance(first, StepStarted)
    assert isinstance(last, StepCompleted)
    assert last.started_at is None


async def test_a_failure_of_another_attempt_leaves_the_task_as_it_is(
    store: Store, bridges: list[Bridge], task: str
) -> None:
    found = await assigned(store, bridges[0], task)
    with pytest.raises(NotFound):
        await bridges[0].resolver.resolve(found.task_id, FailAction(Failure("late"), attempt=9), b"")
    assert [] == await told(store, found)
    await bridges[0].resolver.resolve(found.task_id, FailAction(Failure("in time"), attempt=1), b"")
    (event,) = await told(store, found)
    assert isinstance(event, StepFailed)
    assert event.started_at is not None


async def test_a_bridge_that_ends_tells_what_it_held_back(
    store: Store, broker_settings: BrokerSettings, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "HELD_BACK_S", LONG_S)
    async with frames(store, task=task) as seen, open_bridge(store, broker_settings) as bridge:
        found = await assigned(store, bridge, task)
    (started,) = await reported(store, found.run_id, lambda event: isinstance(event, StepStarted))
    assert isinstance(started, StepStarted)
    kept = await leased(store, {"task_id": found.task_id})
    assert b"+ACK" not in seen
    async with open_bridge(store, broker_settings) as successor:
        await successor.resolver.resolve(found.task_id, CompleteAction(b"1"), b'{"action": "complete", "output": 1}')
    assert kept.lease.worker_id == "w-1"
    await acknowledged(store, task)


async def test_tasks_of_a_client_that_left_are_given_back_and_not_told_of(
    store: Store, bridges: list[Bridge], task: str
) -> None:
    client = Presence()
    await dispatch(store, task)
    async with frames(store, task=task) as seen:
        waiting = bridges[0]._handout.hand_out

        async def leave_meanwhile(*given: Any) -> list[PolledTask]:
            tasks = await waiting(*given)
            client.left.set()
            return tasks

        bridges[0]._handout.hand_out = leave_meanwhile  # type: ignore[method-assign]
        assert [] == await bridges[0].poll(PollTasks([task], 1, 10_000, "w-1"), client)
        await until_true(lambda: seen == [b"-NAK"])
    again = await polled(bridges[1], task)
    assert 2 == again.deliveries
    await bridges[1].resolver.resolve(again.task_id, CompleteAction(b"1"), b"")
    (started, _) = await told(store, again)
    assert isinstance(started, StepStarted)
    assert 2 == started.delivery
