"""What a front end has in hand for its pollers: bounded in bytes, however many poll and however large their tasks
are."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker import names
from penstock.broker.nats.pull import Delivery, Pull
from penstock.broker.store import Store
from penstock.config.limits import ACK_WAIT_S, MIB, POLL_BYTES_MAX
from penstock.engine.errors import Unavailable
from penstock.http.bridge import byte_budget
from penstock.http.bridge import queue as queue_module
from penstock.http.bridge.byte_budget import ByteBudget
from penstock.http.bridge.queue import (
    AHEAD_MAX,
    AHEAD_S,
    NOT_AHEAD_S,
    Ahead,
    PolledQueue,
    Poller,
    QueueName,
    TakenDelivery,
)
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


def test_as_many_are_requested_ahead_as_were_answered_at_once_of_late() -> None:
    ahead, times = Ahead(), [AHEAD_S * (count + 0.5) for count in range(100, 110)]
    assert 0 == ahead.number(times[0])
    for _ in range(3):
        ahead.answer(times[0])
    assert 3 == ahead.number(times[0])
    ahead.answer(times[1])
    assert [3, 1, 0] == [ahead.number(now) for now in times[1:4]]
    for _ in range(AHEAD_MAX + 1):
        ahead.answer(times[4])
    assert AHEAD_MAX == ahead.number(times[4])
    ahead.answer(times[9])
    assert 1 == ahead.number(times[9])


def test_none_is_requested_ahead_for_a_while_after_one_came_too_early() -> None:
    ahead = Ahead()
    ahead.stop(7.0)
    ahead.answer(7.0)
    assert 0 == ahead.number(7.0)
    ahead.answer(7.0 + NOT_AHEAD_S)
    assert 1 == ahead.number(7.0 + NOT_AHEAD_S)


@given(st.lists(st.tuples(st.floats(0, AHEAD_S * 3), st.sampled_from(["answer", "answer", "stop"])), max_size=120))
def test_no_more_are_requested_ahead_than_were_answered_in_two_periods(happened: list[tuple[float, str]]) -> None:
    ahead, now, answers, stopped = Ahead(), 100.0, list[float](), 0.0
    for passed, what in happened:
        now += passed
        if what == "stop":
            ahead.stop(now)
            stopped = now + NOT_AHEAD_S
        else:
            ahead.answer(now)
            answers.append(now)
        since_period = sum(int(at / AHEAD_S) == int(now / AHEAD_S) for at in answers)
        since_one_before = sum(int(at / AHEAD_S) >= int(now / AHEAD_S) - 1 for at in answers)
        found = ahead.number(now)
        assert 0 <= found <= min(AHEAD_MAX, since_one_before)
        assert found == 0 if now < stopped else found >= min(AHEAD_MAX, since_period)


async def test_tasks_come_before_their_polls_while_tasks_are_answered_at_once(
    store: Store, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds in ("SPARE_S", "AHEAD_S"):
        monkeypatch.setattr(queue_module, seconds, PATIENCE_S)
    queues = PolledQueues(store, lambda _: None)
    queue, _ = await _asked_ahead(store, queues, task)
    for _ in range(2):
        await dispatch(store, task)
    await until_true(lambda: len(queue._spare) == 2)
    poller = Poller(2)
    await queues.poll([QueueName(task)], poller, None, PATIENCE_S)
    assert 2 == len(poller.taken)
    await queues.close()


async def test_a_task_that_no_poll_takes_goes_back_and_no_other_is_requested_ahead(
    store: Store, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "AHEAD_S", PATIENCE_S)
    queues = PolledQueues(store, lambda _: None)
    queue, reply = await _asked_ahead(store, queues, task)
    await dispatch(store, task)
    await until_true(lambda: queue._ahead._none_until > 0 and not queue._spare)
    queues.answered_at_once(reply)
    assert [0, 0] == [queue._room(), queue._surplus]
    poller = Poller(1)  # a poll gets it all the same
    await queues.poll([QueueName(task)], poller, None, PATIENCE_S)
    assert [2] == [one.delivery.deliveries for one in poller.taken]
    await queues.close()


async def test_a_task_that_comes_while_its_queue_is_being_closed_goes_back(
    store: Store, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "AHEAD_S", PATIENCE_S)
    queues, others, recall = PolledQueues(store, lambda _: None), PolledQueues(store, lambda _: None), Pull.recall
    queue, _ = await _asked_ahead(store, queues, task)

    async def while_one_comes(pull: Pull) -> None:
        await dispatch(store, task)
        await until_true(lambda: bool(queue._spare))
        await recall(pull)

    monkeypatch.setattr(Pull, "recall", while_one_comes)
    await queues.close()
    monkeypatch.undo()
    poller = Poller(1)
    await others.poll([QueueName(task)], poller, None, ACK_WAIT_S / 2)  # not only when the broker gives it up
    assert [2] == [one.delivery.deliveries for one in poller.taken]
    await others.close()


async def test_a_poll_takes_what_comes_with_its_first_task(store: Store, task: str) -> None:
    queue = PolledQueue(QueueName(task), store, lambda _: None, ByteBudget(lambda: None))
    await queue.open()
    first, second = Poller(3), Poller(3)
    queue.join(first)
    queue.join(second)
    for _ in range(6):
        queue._take(Delivery(store.broker, "task.t.r", f"$JS.ACK.S.{queue.consumer}.1.1.1.1.0", b"{}"))
    assert [(1, True), (3, True)] == [(len(one.taken), one.ready.done()) for one in (first, second)]
    assert 2 == len(queue._spare)
    queue._spare.clear()
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


async def _asked_ahead(store: Store, queues: PolledQueues, task: str) -> tuple[PolledQueue, str]:
    """A queue that has requested deliveries without a poll, as after quick answers, and the subject of the
    acknowledgement of its first task, which a poll has taken."""
    queue, poller = await queues._queue(QueueName(task)), Poller(1)
    await dispatch(store, task)
    await queues.poll([QueueName(task)], poller, None, PATIENCE_S)
    reply = poller.taken[0].delivery.reply
    for _ in range(AHEAD_MAX):
        queues.answered_at_once(reply)
    await queue.ask()
    return queue, reply


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
