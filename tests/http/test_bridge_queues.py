"""What a front end has in hand for its pollers: bounded in bytes, however many poll and however large their tasks
are."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker import names
from penstock.broker.nats.pull import Delivery, Pull
from penstock.broker.store import Store
from penstock.config.limits import MIB, POLL_BYTES_MAX
from penstock.engine.errors import Unavailable
from penstock.http.bridge import byte_budget
from penstock.http.bridge.byte_budget import ByteBudget
from penstock.http.bridge.queue import PolledQueue, Poller, QueueName, TakenDelivery
from penstock.http.bridge.queues import PolledQueues
from tests.http.bridge import is_polled
from tests.support.waiting import until_true
from tests.worker.task_queue import dispatch, durable

LARGE = "x" * (MIB - 2)
POLLERS = 60
REQUESTS_MAX = 7  # so many polls double what is asked for: 1, 1, 2, 4, 8, 16 and the rest
PATIENCE_S = 60


async def test_pollers_with_large_tasks_wait_while_the_process_has_enough_in_hand(
    store: Store, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request that is out when it becomes too much may still bring 8 MiB; without a bound, all would come."""
    monkeypatch.setattr(byte_budget, "TASKS_BYTES_MAX", 2 * MIB)
    await durable(store, task, 60)
    await asyncio.gather(*(dispatch(store, task, LARGE) for _ in range(POLLERS)))
    pausing = f"CONSUMER.PAUSE.{names.TASKS}.{names.task_consumer(task)}"
    await store.broker.api(pausing, {"pause_until": "2099-01-01T00:00:00Z"})
    queues, pollers = PolledQueues(store, lambda _: None), [Poller(1) for _ in range(POLLERS)]
    polls = [asyncio.create_task(queues.poll([QueueName(task)], poller, None, PATIENCE_S)) for poller in pollers]
    await is_polled(store, task)
    await store.broker.api(pausing, {})
    await until_true(lambda: queues._budget.full)
    await _quiet(store, pollers)
    assert 2 <= _budget(pollers) <= 2 + 8 * REQUESTS_MAX < POLLERS
    for poller, polling in zip(pollers, polls, strict=True):
        polling.add_done_callback(lambda _, poller=poller: queues.let_go(poller.taken))
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*polls)
    assert [1] * POLLERS == [len(poller.taken) for poller in pollers]
    assert 1 == len({one.deliveries for poller in pollers for _, one in poller.taken})
    await queues.close()


async def test_a_poll_of_large_tasks_is_answered_with_few(store: Store) -> None:
    delivery = Delivery(store.broker, "task.t.r", "", bytes(MIB))
    poller = Poller(1000)
    poller.expect(1000)
    for _ in range(POLL_BYTES_MAX // MIB):
        assert poller.wanted > 0
        assert not poller.ready.done()
        poller.take(TakenDelivery("t", delivery))
    assert (0, True) == (poller.wanted, poller.ready.done())


async def test_a_queue_asks_again_after_a_recall_that_failed(
    store: Store, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = PolledQueue(QueueName(task), store, lambda _: None, ByteBudget(lambda: None))
    await queue.open()
    monkeypatch.setattr(Pull, "recall", _gone)
    await queue._settle(-1)
    monkeypatch.undo()
    poller = Poller(1)
    queue.join(poller)
    await queue.ask()
    await dispatch(store, task)
    async with asyncio.timeout(PATIENCE_S):
        await poller.ready
    assert [task] == [one.task for one in poller.taken]
    await queue.close()


async def test_queues_are_closed_while_another_one_is_being_opened(store: Store, task: str) -> None:
    """Its end takes it out of the dict that the closing goes through."""
    queues = PolledQueues(store, lambda _: None)
    polls = [
        asyncio.create_task(queues.poll([QueueName(f"{task}.{number}")], Poller(1), None, 0)) for number in range(3)
    ]
    await asyncio.gather(*polls)
    for number in range(3, 6):
        queues._open[QueueName(f"{task}.{number}")] = asyncio.create_task(queues._opened(QueueName(f"{task}.{number}")))
    queues._open = dict(reversed(queues._open.items()))  # those that are being opened come first
    await asyncio.sleep(0)  # they have begun
    await queues.close()
    assert 3 == len(queues._open)


async def _gone(pull: Pull) -> None:
    raise Unavailable("the connection broke")


def _budget(pollers: list[Poller]) -> int:
    return sum(len(poller.taken) for poller in pollers)


async def _quiet(store: Store, pollers: list[Poller]) -> None:
    """Return when nothing more comes though the broker has had its time."""
    before = -1
    while before != _budget(pollers):
        before = _budget(pollers)
        for _ in range(10):
            await store.broker.flush()
