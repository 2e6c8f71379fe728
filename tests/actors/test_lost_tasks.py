"""Tasks of bound runs whose worker has gone: they are found, and go to whoever is free; those that are held are left
alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.actors.control import run_operations
from penstock.actors.maintenance.lost_tasks import return_lost_tasks
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs import shard as shard_module
from penstock.actors.runs.loading import snapshots
from penstock.broker import names
from penstock.broker.nats.pull import Delivery, open_pull
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import decode
from penstock.config.settings import BrokerSettings
from penstock.engine.run.events import StepCompleted, StepStarted
from penstock.engine.run.state import RunStatus, StepStatus
from tests.support.waiting import until
from tests.support.world import chain, echo, ended, start

ACK_WAIT_S = 1
WORKER = "w-1"

pytestmark = pytest.mark.usefixtures("shard")


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(shard_module, "SNAPSHOT_AFTER_S", 0.0)  # who looks for lost tasks reads snapshots first
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")):
        yield


async def begun(store: Store, name: str, sticky: str) -> tuple[str, Delivery]:
    """A run of which its worker has begun the second step, and that delivery: it is held for a second."""
    run_id = await start(store, {**chain(name, 2), "sticky": sticky})
    task = f"{name}.echo"
    await until(lambda: store.reader.one(names.TASKS, names.task_subject(task, run_id)))
    consumer, queue = names.sticky_consumer(task, WORKER), asyncio.Queue[Delivery]()
    config = {
        "name": consumer,
        "durable_name": consumer,
        "ack_policy": "explicit",
        "ack_wait": ACK_WAIT_S * 10**9,
        "filter_subject": names.sticky_filter(task, WORKER),
    }
    await store.broker.api(
        f"CONSUMER.CREATE.{names.STICKY}.{consumer}", {"stream_name": names.STICKY, "config": config}
    )
    await store.history.append(StepCompleted(run_id=run_id, step_id="s0", attempt_number=1, worker_id=WORKER))
    await until(lambda: store.reader.one(names.STICKY, names.sticky_subject(task, WORKER, run_id)))
    async with open_pull(store.broker, names.STICKY, consumer, queue.put_nowait, batch=1):
        delivery = await queue.get()
    assert ("s1", 1) == (decode(delivery.data).step_id, decode(delivery.data).attempt)
    await store.history.append(StepStarted(run_id=run_id, step_id="s1", attempt_number=1, worker_id=WORKER))

    async def running() -> bool:
        found = await snapshots(store, [run_id])
        return run_id in found and found[run_id].steps["s1"].status is StepStatus.RUNNING

    await until(running)
    return run_id, delivery


async def test_a_task_that_its_dead_worker_had_begun_goes_to_another(store: Store) -> None:
    run_id, _ = await begun(store, "lost", "soft")

    async def returned() -> bool:
        return await return_lost_tasks(store) == 1

    await until(returned)
    assert 0 == await return_lost_tasks(store)
    async with echo(store, "lost.echo") as worker:
        run = await ended(store, run_id)
    assert (RunStatus.COMPLETED, 1) == (run.status, run.steps["s1"].attempts)
    assert 1 == worker.seen[f"{run_id}.s1"]
    assert await store.reader.one(names.STICKY, names.sticky_subject("lost.echo", WORKER, run_id)) is None


async def test_a_task_of_a_worker_whose_consumer_is_gone_goes_to_another(store: Store) -> None:
    """A worker that stopped in order has removed it, and what it could not finish is still in the stream."""
    run_id, delivery = await begun(store, "stopped", "soft")
    await delivery.give_back()
    await store.sticky_tasks.forget("stopped.echo", WORKER)
    assert 1 == await return_lost_tasks(store)
    async with echo(store, "stopped.echo"):
        assert RunStatus.COMPLETED is (await ended(store, run_id)).status


async def test_a_task_that_is_kept_alive_stays_where_it_is(store: Store) -> None:
    run_id, delivery = await begun(store, "held", "soft")
    other, _ = await begun(store, "other", "soft")

    async def other_is_returned() -> bool:
        await delivery.in_progress()
        return await return_lost_tasks(store) == 1

    await until(other_is_returned)
    assert (await run_operations.get(store, run_id)).steps["s1"].sticky == WORKER
    assert (await run_operations.get(store, other)).steps["s1"].sticky is None
    for one in (run_id, other):
        await run_operations.cancel(store, one)
        await ended(store, one)


async def test_a_task_whose_worker_asks_for_more_stays_where_it_is(store: Store) -> None:
    run_id, delivery = await begun(store, "asking", "soft")
    consumer, queue = names.sticky_consumer("asking.echo", WORKER), asyncio.Queue[Delivery]()
    async with open_pull(store.broker, names.STICKY, consumer, queue.put_nowait, batch=10):
        await delivery.give_back()
        assert decode((await queue.get()).data).run_id == run_id  # the worker itself gets it again
        assert 0 == await return_lost_tasks(store)
        await (await queue.get()).ack()  # and again, a second later: nobody else had it meanwhile
    assert queue.empty()
    await run_operations.cancel(store, run_id)
    await ended(store, run_id)


async def test_a_hard_run_waits_for_its_worker(store: Store) -> None:
    run_id, delivery = await begun(store, "hard", "hard")
    await delivery.give_back()
    assert 0 == await return_lost_tasks(store)
    run = await run_operations.get(store, run_id)
    assert (StepStatus.RUNNING, WORKER) == (run.steps["s1"].status, run.steps["s1"].sticky)
