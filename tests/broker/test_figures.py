"""What a scrape learns of the broker: queues by task type, and streams."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from msgspec import Raw

from penstock.broker import names
from penstock.broker.nats.pull import Delivery
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store
from penstock.broker.streams import stats
from penstock.engine.run.commands import DispatchTask
from tests.support.waiting import until, until_true


@pytest.fixture
async def clean(store: Store) -> AsyncIterator[Store]:
    await store.broker.api(f"STREAM.PURGE.{names.TASKS}")
    yield store
    for info in (await store.broker.api(f"CONSUMER.LIST.{names.TASKS}"))["consumers"] or []:
        await store.broker.api(f"CONSUMER.DELETE.{names.TASKS}.{info['name']}")


async def queues(store: Store, *known: stats.Kind) -> stats.Queues:
    async def types() -> tuple[stats.Kind, ...]:
        return known

    return await stats.queues(store.broker, store.reader, types)


async def counted(store: Store, waiting: dict[str, int], *known: stats.Kind) -> stats.Queues:
    """The figures, once the broker's count of what waits has come up with what it has stored: no other queue has a
    row."""

    async def as_waiting() -> stats.Queues | None:
        now = await queues(store, *known)
        return now if waiting == {task: queue.waiting for task, queue in now.by_task.items()} else None

    found = await until(as_waiting)
    assert found is not None
    return found


async def dispatch(store: Store, task: str, count: int, group: str | None = None) -> None:
    for _ in range(count):
        await store.tasks.send(new_run_id(), "w", DispatchTask("a", task, 1, 0, Raw(b"1"), {}, group))


async def test_waiting_and_delivered_tasks_are_distinguished(clean: Store) -> None:
    taken: list[Delivery] = []
    await dispatch(clean, "mail", 5)
    async with clean.tasks.consume("mail", taken.append, batch=2, room=lambda: 2 - len(taken)):
        await until_true(lambda: len(taken) == 2)

        async def settled() -> bool:
            queue = (await queues(clean)).by_task["mail"]
            return (queue.waiting, queue.delivered) == (3, 2)

        await until(settled)
        for delivery in taken:
            await delivery.ack()

        async def answered() -> bool:
            return (await queues(clean)).by_task["mail"].delivered == 0

        await until(answered)


async def test_the_oldest_task_is_the_oldest_without_an_answer(clean: Store) -> None:
    taken: list[Delivery] = []
    async with clean.tasks.consume("old", taken.append, batch=1, room=lambda: 1 - len(taken)):
        await dispatch(clean, "old", 1)
        await until_true(lambda: len(taken) == 1)
        first_at = taken[0].at
        await dispatch(clean, "old", 1)
        held = (await queues(clean)).by_task["old"].oldest_s
        assert held is not None
        assert abs(held - (time.time() - first_at)) < 1
        await taken[0].ack()

        async def younger() -> bool:
            queue = (await queues(clean)).by_task["old"]
            return queue.delivered == 0 and queue.oldest_s is not None and queue.oldest_s < time.time() - first_at

        await until(younger)


async def test_an_empty_queue_has_no_age_and_groups_stand_apart(clean: Store) -> None:
    async with AsyncExitStack() as stack:
        for task, group in (("mail.send", None), ("mail", "eu"), ("idle", None)):
            await stack.enter_async_context(
                clean.tasks.consume(task, lambda delivery: None, batch=1, room=lambda: 0, group=group)
            )
        await dispatch(clean, "mail.send", 1)
        await dispatch(clean, "mail", 2, "eu")
        found = await counted(clean, {"mail.send": 1, "mail:eu": 2, "idle": 0})
    assert stats.Queue(0, 0, 0.0) == found.by_task["idle"]


async def test_tasks_that_no_worker_ever_asked_for_are_counted_by_type(clean: Store) -> None:
    await dispatch(clean, "nobody", 4)
    await dispatch(clean, "nobody", 2, "eu")
    await dispatch(clean, "forgotten", 1)
    async with clean.tasks.consume("somebody", lambda delivery: None, batch=1, room=lambda: 0):
        await dispatch(clean, "somebody", 3)
        found = await counted(
            clean, {"somebody": 3}, ("nobody", None), ("nobody", "eu"), ("somebody", None), ("idle", None)
        )
    assert {"nobody": 4, "nobody:eu": 2, "other": 1} == found.unclaimed


async def test_types_beyond_the_bound_are_summed(clean: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "LABELS_MAX", 2)
    async with AsyncExitStack() as stack:
        for number in range(4):
            await stack.enter_async_context(
                clean.tasks.consume(f"t{number}", lambda delivery: None, batch=1, room=lambda: 0)
            )
            await dispatch(clean, f"t{number}", number + 1)
        await counted(clean, {"t3": 4, "t2": 3, "other": 3})


async def test_streams_that_are_not_there_are_left_out(store: Store) -> None:
    found = await stats.streams(store.broker, [names.HISTORY, "NO_SUCH_STREAM"])
    assert {names.HISTORY} == found.keys()
