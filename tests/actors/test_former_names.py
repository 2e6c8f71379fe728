"""An upgrade with tasks that wait under names of a former version: nothing is lost, and nothing is taken from who holds
it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.actors.control import run_operations
from penstock.actors.maintenance.former_names import FormerNameMover
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.broker import names
from penstock.broker.nats.pull import Delivery, open_pull
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.run.events import StepCompleted
from penstock.engine.run.state import RunStatus
from tests.support.waiting import until, until_true
from tests.support.world import chain, echo, ended, start

LATER = float("inf")

pytestmark = pytest.mark.usefixtures("shard")


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[None]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")):
        yield


async def consumer(store: Store, stream: str, name: str, subject: str) -> None:
    """As a worker of the former version makes it."""
    config = {"durable_name": name, "ack_policy": "explicit", "filter_subject": subject, "ack_wait": 10**9}
    await store.broker.api(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})


async def put_back(store: Store, stream: str, subject: str, former: str) -> None:
    """The task waits where the former version would have put it."""
    await until(lambda: store.reader.one(stream, subject))
    [stored] = await store.reader.subject(stream, subject)
    await store.former_names.move(stream, stored, former, former)


async def queued(store: Store, name: str, **more: Any) -> str:
    """A run whose only step is of a group, and waits in the queue of the type that looked like it."""
    run_id = await start(store, chain(name, 1, worker_group="g", **more))
    await put_back(store, names.TASKS, names.task_subject(f"{name}.echo", run_id, "g"), f"task.{name}.echo.g.{run_id}")
    return run_id


async def carried_out(store: Store, task: str, run_id: str, group: str | None = "g") -> None:
    """By a worker of the group of today."""
    async with store.tasks.consume(
        task, (taken := asyncio.Queue[Delivery]()).put_nowait, batch=1, room=lambda: 1, group=group
    ):
        delivery = await taken.get()
        await store.history.append(StepCompleted(run_id=run_id, step_id="s0", attempt_number=1))
        await delivery.ack()
    assert RunStatus.COMPLETED is (await ended(store, run_id)).status


async def test_a_groups_task_goes_to_its_group(store: Store) -> None:
    """There is no consumer for it, or one that nobody asks any more."""
    for name in ("unclaimed", "left"):
        run_id = await queued(store, name)
        if name == "left":
            await consumer(store, names.TASKS, f"workers-{name}-echo-g", f"task.{name}.echo.g.*")
        assert 1 == await FormerNameMover(store).move(LATER)
        await carried_out(store, f"{name}.echo", run_id)
    assert [] == await store.reader.subject(names.TASKS, "task.>")


async def test_a_task_whose_type_resembles_a_group_stays_and_counts_no_delivery(store: Store) -> None:
    name = "alike"
    run_id = await start(store, {"name": name, "steps": [{"id": "s0", "task": "alike.echo.g"}]})
    other = await queued(store, name)
    await consumer(store, names.TASKS, "workers-alike-echo-g", "task.alike.echo.g.*")
    look = FormerNameMover(store)
    assert (1, 0) == (await look.move(LATER), await look.move(LATER))
    async with echo(store, "alike.echo.g") as worker:
        assert RunStatus.COMPLETED is (await ended(store, run_id)).status
    assert {f"{run_id}.s0": 1} == worker.seen
    await carried_out(store, "alike.echo", other)


async def test_what_a_worker_of_the_former_version_holds_or_asks_for_stays_until_it_is_gone(store: Store) -> None:
    run_id = await queued(store, "held")
    await consumer(store, names.TASKS, "workers-held-echo-g", "task.held.echo.g.*")
    look, taken = FormerNameMover(store), list[Delivery]()
    async with open_pull(store.broker, names.TASKS, "workers-held-echo-g", taken.append, batch=2):
        await until_true(lambda: bool(taken))
        assert 0 == await look.move(LATER)
    await taken[0].in_progress()
    assert 0 == await look.move(LATER)

    async def moved() -> bool:
        """It is not kept alive any more."""
        return await look.move(LATER) == 1

    await until(moved)
    await carried_out(store, "held.echo", run_id)


async def test_a_task_for_a_worker_with_dots_in_its_id_waits_for_it_under_its_name_of_today(store: Store) -> None:
    run_id = await start(store, {**chain("bound", 2), "sticky": "hard"})
    await until(lambda: store.reader.one(names.TASKS, names.task_subject("bound.echo", run_id)))
    former = f"sticky.bound.echo.w.1.{run_id}"
    await consumer(store, names.STICKY, names.sticky_consumer("bound.echo", "w.1"), "sticky.bound.echo.w.1.*")
    await store.history.append(StepCompleted(run_id=run_id, step_id="s0", attempt_number=1, worker_id="w.1"))
    await put_back(store, names.STICKY, names.sticky_subject("bound.echo", "w.1", run_id), former)
    look, taken = FormerNameMover(store), asyncio.Queue[Delivery]()
    assert 0 == await look.move(LATER)  # its worker of the former version takes it
    async with store.sticky_tasks.consume("bound.echo", "w.1", taken.put_nowait, batch=1, room=lambda: 1):
        assert 1 == await look.move(LATER)
        delivery = await taken.get()
        await store.history.append(StepCompleted(run_id=run_id, step_id="s1", attempt_number=1, worker_id="w.1"))
        await delivery.ack()
        assert RunStatus.COMPLETED is (await ended(store, run_id)).status


async def test_a_task_of_a_run_that_has_ended_is_taken_back_under_either_name(store: Store) -> None:
    run_id = await queued(store, "ended")
    await run_operations.cancel(store, run_id)
    await ended(store, run_id)
    subject = f"task.ended.echo.g.{run_id}"

    async def gone() -> bool:
        return not await store.reader.subject(names.TASKS, subject)

    await until(gone)
    await store.publisher.send(subject, b'{"task_id":"x","run_id":"%s","step_id":"s0"}' % run_id.encode())
    await store.publisher.send(subject, b"no task")
    assert 1 == await FormerNameMover(store).move(LATER)
    assert [b"no task"] == [one.data for one in await store.reader.subject(names.TASKS, subject)]


async def test_what_is_young_is_left_to_those_who_take_it(store: Store) -> None:
    run_id = await queued(store, "young")
    look = FormerNameMover(store)
    assert (0, 1) == (await look.move(await store.history.now() - 60), await look.move(LATER))
    await carried_out(store, "young.echo", run_id)
