"""Where the tasks of a sticky run go: to the worker that it is bound to only if that takes tasks of the type, which the
broker knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from penstock.actors.control import run_operations
from penstock.actors.maintenance.lost_tasks import return_lost_tasks
from penstock.actors.maintenance.unserved import UNSERVED_S, UnservedTasks
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.broker import names
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.run.events import StepCompleted, StepStarted
from penstock.engine.run.state import RunStatus
from tests.support.waiting import until
from tests.support.world import ended, start

pytestmark = pytest.mark.usefixtures("shard")


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[None]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")):
        yield


def pair(name: str, sticky: str, **more: Any) -> dict[str, Any]:
    """A step of type `<name>.a`, then one of `<name>.b`."""
    steps = [{"id": "a", "task": f"{name}.a"}, {"id": "b", "task": f"{name}.b", "depends_on": ["a"], **more}]
    return {"name": name, "sticky": sticky, "steps": steps}


async def bound(store: Store, name: str, sticky: str, worker: str, **more: Any) -> str:
    """A run whose first step this worker has completed."""
    run_id = await start(store, pair(name, sticky, **more))
    await until(lambda: store.reader.one(names.TASKS, names.task_subject(f"{name}.a", run_id)))
    await store.history.append(StepCompleted(run_id=run_id, step_id="a", attempt_number=1, worker_id=worker))
    return run_id


async def consumer(store: Store, task: str, worker: str, name: str | None = None, subject: str | None = None) -> None:
    """The worker takes tasks of this type, whatever it calls the consumer."""
    name = name or names.sticky_consumer(task, worker)
    config = {
        "durable_name": name,
        "ack_policy": "explicit",
        "filter_subject": subject or names.sticky_filter(task, worker),
    }
    await store.broker.api(f"CONSUMER.CREATE.{names.STICKY}.{name}", {"stream_name": names.STICKY, "config": config})


async def is_queued(store: Store, task: str, run_id: str, worker: str | None = None, group: str | None = None) -> None:
    stream = names.TASKS if worker is None else names.STICKY
    other = names.STICKY if worker is None else names.TASKS
    subject = names.task_subject(task, run_id, group) if worker is None else names.sticky_subject(task, worker, run_id)
    await until(lambda: store.reader.one(stream, subject))
    assert [] == [one.subject for one in await store.reader.subject(other, f"*.{task}.>")]


async def test_a_soft_task_whose_worker_takes_none_of_its_type_goes_to_everyone_at_once(store: Store) -> None:
    await consumer(store, "other.a", "w1")
    run_id = await bound(store, "other", "soft", "w1")
    await is_queued(store, "other.b", run_id)
    await store.history.append(StepCompleted(run_id=run_id, step_id="b", attempt_number=1, worker_id="w2"))
    assert RunStatus.COMPLETED is (await ended(store, run_id)).status


@pytest.mark.parametrize("name", [None, "mine", "wide"])
async def test_a_task_goes_to_the_worker_that_takes_its_type_whatever_it_calls_its_consumer(
    store: Store, name: str | None
) -> None:
    workflow = f"own-{name}"
    await consumer(store, f"{workflow}.b", f"w-{name}", name, f"sticky.*.*.w-{name}.*" if name == "wide" else None)
    run_id = await bound(store, workflow, "soft", f"w-{name}")
    await is_queued(store, f"{workflow}.b", run_id, f"w-{name}")


@pytest.mark.parametrize("sticky", ["soft", "hard"])
async def test_a_step_of_another_group_goes_to_its_group_at_once(store: Store, sticky: str) -> None:
    await consumer(store, f"group-{sticky}.b", "w1")
    run_id = await bound(store, f"group-{sticky}", sticky, "w1", worker_group="gpu")
    await is_queued(store, f"group-{sticky}.b", run_id, group="gpu")


async def test_the_end_of_a_run_takes_its_task_back_wherever_it_went(store: Store) -> None:
    run_id = await bound(store, "taken-back", "soft", "w1")
    await is_queued(store, "taken-back.b", run_id)
    await run_operations.cancel(store, run_id)
    await until(lambda: gone(store, names.task_subject("taken-back.b", run_id)))


async def gone(store: Store, subject: str) -> bool:
    return not await store.reader.subject(names.TASKS, subject)


async def test_a_hard_task_whose_worker_takes_others_only_fails_its_step_and_says_so(store: Store) -> None:
    await consumer(store, "vain.a", "w1")
    run_id = await bound(store, "vain", "hard", "w1")
    await is_queued(store, "vain.b", run_id, "w1")
    unserved = UnservedTasks(store)
    assert [0, 0, 1] == [await unserved.fail(at) for at in (0.0, UNSERVED_S - 0.1, UNSERVED_S)]
    run = await ended(store, run_id)
    error = 'worker "w1", to which the run is bound (sticky: hard), takes other tasks, but none of type "vain.b"'
    assert (RunStatus.FAILED, f'step "b" failed: {error}') == (run.status, run.error)
    await until(lambda: nothing_waits(store, "vain.b"))
    assert 0 == await unserved.fail(UNSERVED_S * 9)


async def nothing_waits(store: Store, task: str) -> bool:
    return not await store.reader.subject(names.STICKY, f"sticky.{task}.>")


async def test_a_hard_task_waits_for_a_worker_that_is_away_or_about_to_come(store: Store) -> None:
    run_id = await bound(store, "away", "hard", "w-away")
    await is_queued(store, "away.b", run_id, "w-away")
    unserved = UnservedTasks(store)
    assert [0, 0] == [await unserved.fail(at) for at in (0.0, 100.0)]
    await consumer(store, "away.a", "w-away")  # it comes: first this one
    assert 0 == await unserved.fail(200.0)
    async with store.sticky_tasks.consume(
        "away.b", "w-away", (taken := asyncio.Queue[Delivery]()).put_nowait, batch=1, room=lambda: 1
    ):
        assert 0 == await unserved.fail(200.0 + UNSERVED_S)
        delivery = await taken.get()
        await store.history.append(StepCompleted(run_id=run_id, step_id="b", attempt_number=1, worker_id="w-away"))
        await delivery.ack()
        assert RunStatus.COMPLETED is (await ended(store, run_id)).status


async def test_a_check_for_lost_tasks_does_not_count_as_the_worker_taking_them(store: Store) -> None:
    await consumer(store, "seem.b", "w1")
    run_id = await bound(store, "seem", "soft", "w1")
    await is_queued(store, "seem.b", run_id, "w1")
    await store.history.append(StepStarted(run_id=run_id, step_id="b", attempt_number=1, worker_id="w1"))
    await store.sticky_tasks.forget("seem.b", "w1")

    async def returned() -> bool:
        return await return_lost_tasks(store) == 1

    with capture_logs():
        await until(returned)
    assert not (await store.sticky_tasks.taken()).has("seem.b", "w1")
