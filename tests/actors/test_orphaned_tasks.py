"""Tasks that a broker keeps and never delivers again: they are made by putting back the messages of a stream as they
were before they were acknowledged, as if the last removals had not reached the disk."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import Raw

from penstock.actors.maintenance.orphaned_tasks import OrphanedTasks
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.broker import names
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.broker.streams.tasks import Tasks
from penstock.broker.worker_messages import decode
from penstock.engine.errors import Unavailable
from penstock.engine.run.commands import DispatchTask
from penstock.engine.run.events import StepCompleted
from penstock.engine.run.state import RunStatus
from tests.support.own_broker import OwnBroker, own_broker
from tests.support.waiting import until
from tests.support.world import chain, echo, ended, start

WORKER = "w-1"
TASK = "orphan.echo"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OwnBroker]:
    with own_broker(tmp_path) as running:
        yield running


@asynccontextmanager
async def engine(broker: OwnBroker) -> AsyncIterator[Store]:
    async with open_store(broker.settings, "test") as store, open_store(broker.settings, "shard") as own:
        await provision(store.broker, broker.settings)
        async with open_shard(own, new_member("shard")):
            yield store


async def queued(store: Store, stream: str = names.TASKS) -> str:
    """A run whose only step is queued; for STICKY, its task is also in the queue of the worker."""
    run_id = await start(store, chain("orphan", 1))
    await until(lambda: store.reader.one(names.TASKS, names.task_subject(TASK, run_id)))
    if stream == names.STICKY:
        await store.tasks.send(
            run_id, "orphan", DispatchTask("s0", TASK, 1, 0, Raw(b"null"), {}, worker=WORKER, again=1)
        )
    return run_id


async def taken(store: Store, stream: str, count: int) -> list[str]:
    """The runs of the next tasks, which are acknowledged and not carried out."""
    deliveries = asyncio.Queue[Delivery]()
    take, more = deliveries.put_nowait, {"batch": 10, "room": lambda: 10}
    consume = (
        store.tasks.consume(TASK, take, **more)
        if stream == names.TASKS
        else store.sticky_tasks.consume(TASK, WORKER, take, **more)
    )
    async with consume:
        found = [await deliveries.get() for _ in range(count)]
        for one in found:
            await one.ack()
        await until(lambda: _is_empty(store, stream))
    assert deliveries.empty()
    return [decode(one.data).run_id for one in found]


async def _is_empty(store: Store, stream: str) -> bool:
    return not (await store.broker.api(f"STREAM.INFO.{stream}"))["state"]["messages"]


def messages(broker: OwnBroker, stream: str) -> Path:
    [found] = Path(broker.settings.data_dir).glob(f"jetstream/**/streams/{stream}/msgs")
    return found


async def orphaned(broker: OwnBroker, stream: str, runs: int) -> list[str]:
    """So many runs whose tasks were acknowledged, and are stored again behind the floor of their consumer."""
    async with engine(broker) as store:
        run_ids = [await queued(store, stream) for _ in range(runs)]
    await asyncio.to_thread(broker.stop)
    place, before = messages(broker, stream), Path(broker.settings.data_dir) / "before"
    shutil.copytree(place, before)
    await asyncio.to_thread(broker.start)
    async with engine(broker) as store:
        assert sorted(run_ids) == sorted(await taken(store, stream, runs))
    await asyncio.to_thread(broker.stop)
    shutil.rmtree(place)
    before.rename(place)
    await asyncio.to_thread(broker.start)
    return run_ids


@pytest.mark.parametrize("stream", [names.TASKS, names.STICKY])
async def test_an_orphaned_task_is_queued_again_where_its_step_waits_and_else_removed(
    broker: OwnBroker, stream: str
) -> None:
    waits, gone = await orphaned(broker, stream, 2)
    async with engine(broker) as store:
        await store.history.append(StepCompleted(run_id=gone, step_id="s0", attempt_number=1))
        await ended(store, gone)
        tasks = OrphanedTasks(store)
        stood = {one.seq for one in await store.reader.subject(stream, ">")}
        assert (2, 0, 2) == (len(stood), await tasks.mend(), len(await store.reader.subject(stream, ">")))
        assert 2 == await tasks.mend()
        [again] = await store.reader.subject(stream, ">")
        assert again.seq not in stood
        assert [waits] == await taken(store, stream, 1)
        assert 0 == await tasks.mend()
        outcomes = store.meters.counter("penstock_orphaned_tasks_total")
        assert {("queued",): 1, ("removed",): 1} == dict(outcomes)


async def test_a_run_that_waits_for_an_orphaned_task_ends(broker: OwnBroker) -> None:
    [run_id] = await orphaned(broker, names.TASKS, 1)
    async with engine(broker) as store, echo(store, TASK) as worker:
        tasks = OrphanedTasks(store)
        await tasks.mend()
        assert 0 == worker.seen.total()
        await tasks.mend()
        assert RunStatus.COMPLETED is (await ended(store, run_id)).status
        assert 1 == worker.seen.total()


async def test_a_task_that_waits_or_is_carried_out_is_left_alone(broker: OwnBroker) -> None:
    async with engine(broker) as store:
        for _ in range(3):
            await queued(store)
        deliveries = asyncio.Queue[Delivery]()
        async with store.tasks.consume(TASK, deliveries.put_nowait, batch=2, room=lambda: 0) as pull:
            await pull.ask_briefly(2)
            first, second = [await deliveries.get() for _ in range(2)]
            await second.ack()
            tasks = OrphanedTasks(store)
            assert [0, 0, 0] == [await tasks.mend() for _ in range(3)]
            assert 2 == len(await store.reader.subject(names.TASKS, ">"))
            await first.ack()


async def test_a_crash_before_the_removal_queues_nothing_twice(
    broker: OwnBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    [run_id] = await orphaned(broker, names.TASKS, 1)
    async with engine(broker) as store:
        tasks = OrphanedTasks(store)
        await tasks.mend()
        with monkeypatch.context() as crashing:
            crashing.setattr(Tasks, "remove", _unavailable)
            with pytest.raises(Unavailable):
                await tasks.mend()
        assert 2 == len(await store.reader.subject(names.TASKS, ">"))
        assert 1 == await tasks.mend()
        assert [run_id] == await taken(store, names.TASKS, 1)


async def _unavailable(*_: object) -> None:
    raise Unavailable("broker: away")
