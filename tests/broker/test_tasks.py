"""The task queues: one durable consumer for each task type, shared by all that work on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw
from uuid_utils import uuid7

from penstock.broker import names
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store
from penstock.broker.streams.tasks import covers
from penstock.broker.worker_messages import TaskPayload, decode
from penstock.config.limits import ACK_WAIT_S
from penstock.engine.errors import Conflict, Unavailable
from penstock.engine.run.commands import DispatchTask
from tests.support.waiting import until_true


def order(task: str, step_id: str = "s", attempt: int = 1, group: str | None = None) -> DispatchTask:
    return DispatchTask(step_id, task, attempt, 0, Raw(b'{"n":1}'), {"k": "v"}, group)


@pytest.fixture
def task() -> str:
    """A task type of the test's own."""
    return f"t{uuid7().hex}"


@pytest.fixture
def run() -> str:
    return uuid7().hex


@asynccontextmanager
async def consuming(store: Store, task: str, group: str | None = None) -> AsyncIterator[asyncio.Queue[Delivery]]:
    queue: asyncio.Queue[Delivery] = asyncio.Queue()
    async with store.tasks.consume(task, queue.put_nowait, batch=10, room=lambda: 10, group=group):
        yield queue


async def consumer(store: Store, task: str, subject: str, group: str | None = None) -> str:
    """A durable that somebody else made, with a filter of his own."""
    name = names.task_consumer(task, group)
    config = {"durable_name": name, "ack_policy": "explicit", "filter_subject": subject}
    await store.broker.api(f"CONSUMER.CREATE.{names.TASKS}.{name}", {"stream_name": names.TASKS, "config": config})
    return name


async def test_a_task_arrives_as_it_was_sent(store: Store, task: str, run: str) -> None:
    await store.tasks.send(run, "wf", order(task, "a.b"))
    async with consuming(store, task) as queue:
        delivery = await queue.get()
        await delivery.ack()
    expected = TaskPayload(f"{run}.a.b", run, "a.b", 0, 1, Raw(b'{"n":1}'), "wf", {"k": "v"})
    assert expected == decode(delivery.data)
    assert names.task_subject(task, run) == delivery.subject


async def test_a_repeated_task_is_queued_once_and_a_retry_again(store: Store, task: str, run: str) -> None:
    for attempt in (1, 1, 2):
        await store.tasks.send(run, "wf", order(task, attempt=attempt))
    async with consuming(store, task) as queue:
        assert [1, 2] == [decode((await queue.get()).data).attempt for _ in range(2)]
        await store.broker.flush()
        assert queue.empty()


async def test_workers_of_one_type_share_its_tasks(store: Store, task: str, run: str) -> None:
    async with consuming(store, task) as one, consuming(store, task) as other:
        for number in range(10):
            await store.tasks.send(f"{run}{number}", "wf", order(task))
        async with asyncio.timeout(10):
            while one.qsize() + other.qsize() < 10:
                await store.broker.flush()
        seqs = [queue.get_nowait().seq for queue in (one, other) for _ in range(queue.qsize())]
    assert 10 == len(set(seqs))


async def test_a_group_gets_its_own_tasks_only(store: Store, task: str, run: str) -> None:
    await store.tasks.send(run, "wf", order(task, "all"))
    await store.tasks.send(run, "wf", order(task, "some", group="g"))
    async with consuming(store, task, "g") as grouped, consuming(store, task) as plain:
        assert "some" == decode((await grouped.get()).data).step_id
        assert "all" == decode((await plain.get()).data).step_id


async def test_types_and_groups_with_similar_names_get_their_own_tasks_only(store: Store, task: str, run: str) -> None:
    each = [
        (f"{task}-x", None),
        (f"{task}.x", None),
        (task, "x"),
        (f"{task}.x", "y"),
        (task, "x.y"),
        (f"{task}.x.y", None),
    ]
    for number, (name, group) in enumerate(each):
        await store.tasks.send(run, "wf", order(name, f"s{number}", group=group))
    async with AsyncExitStack() as stack:
        queues = [await stack.enter_async_context(consuming(store, *one)) for one in each]
        assert [f"s{number}" for number in range(len(each))] == [
            decode((await queue.get()).data).step_id for queue in queues
        ]
        assert all(queue.empty() for queue in queues)
    assert [ACK_WAIT_S] * len(each) == [await store.tasks.ack_wait_s(*one) for one in each]


async def test_a_durable_of_a_former_version_is_used_on(store: Store, task: str, run: str) -> None:
    """Its name has a dash for a dot: it is used for the type that it serves, and the type whose name it has gets
    another one."""
    dotted, dashed, former = f"{task}.x", f"{task}-x", f"workers-{task}-x"
    config = {
        "durable_name": former,
        "ack_policy": "explicit",
        "filter_subject": names.task_filter(dotted),
        "ack_wait": 7 * 10**9,
    }
    await store.broker.api(f"CONSUMER.CREATE.{names.TASKS}.{former}", {"stream_name": names.TASKS, "config": config})
    for name in (dotted, dashed):
        await store.tasks.send(run, "wf", order(name, name[-2:]))
    async with consuming(store, dotted) as first, consuming(store, dashed) as second, consuming(store, dashed) as third:
        assert ".x" == decode((await first.get()).data).step_id
        await until_true(lambda: not (second.empty() and third.empty()))
        assert first.empty()
    assert [7, ACK_WAIT_S] == [await store.tasks.ack_wait_s(name) for name in (dotted, dashed)]
    assert former in await consumers(store)
    assert f"workers-{task}=x" not in await consumers(store)


async def consumers(store: Store) -> list[str]:
    return list((await store.broker.api(f"CONSUMER.NAMES.{names.TASKS}"))["consumers"])


async def test_a_durable_with_a_wider_filter_is_used_as_it_is(store: Store, task: str, run: str) -> None:
    name = await consumer(store, task, f"task.{task}.>")
    await store.tasks.send(run, "wf", order(task))
    async with consuming(store, task) as queue:
        assert f"{run}.s" == decode((await queue.get()).data).task_id
    info = await store.broker.api(f"CONSUMER.INFO.{names.TASKS}.{name}")
    assert f"task.{task}.>" == info["config"]["filter_subject"]


async def test_a_durable_with_another_filter_is_a_conflict_that_names_both(store: Store, task: str) -> None:
    await consumer(store, task, f"task.{task}.only-this-run")
    with pytest.raises(Conflict, match=rf"serves task\.{task}\.only-this-run, not task\.{task}\.\*"):
        async with consuming(store, task):
            raise AssertionError("a consumer of something else was used")


async def test_a_broker_that_goes_while_it_is_asked_for_a_durable_is_unavailable(
    store: Store, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await consumer(store, task, f"task.{task}.>")
    ask = store.broker.api

    async def goes(verb: str, *given: Any, **more: Any) -> dict[str, Any]:
        if verb.startswith("CONSUMER.INFO."):
            raise Unavailable("broker: not connected")
        return await ask(verb, *given, **more)

    monkeypatch.setattr(store.broker, "api", goes)
    with pytest.raises(Unavailable, match="not connected"):
        async with consuming(store, task):
            raise AssertionError("nobody knows whether the consumer is the right one")


async def test_a_type_whose_tasks_another_consumer_takes_is_refused(store: Store, task: str) -> None:
    await consumer(store, f"{task}-other", f"task.{task}.>")
    with pytest.raises(Exception, match="filtered consumer not unique"):
        async with consuming(store, task):
            raise AssertionError("two consumers share a task")


async def test_withdrawn_tasks_are_gone_from_the_queue_and_from_workers(store: Store, task: str, run: str) -> None:
    await store.tasks.send(run, "wf", order(task, "held"))
    async with consuming(store, task) as queue:
        held = await queue.get()
        await store.tasks.withdraw(run, task, None, None, lambda: None)
        await held.give_back()
        await store.tasks.send(f"{run}x", "wf", order(task))
        assert f"{run}x.s" == decode((await queue.get()).data).task_id
        assert queue.empty()


async def test_withdrawing_spares_other_runs(store: Store, task: str, run: str) -> None:
    await store.tasks.send(run, "wf", order(task))
    await store.tasks.send(f"{run}x", "wf", order(task))
    await store.tasks.withdraw(run, task, None, None, lambda: None)
    async with consuming(store, task) as queue:
        assert f"{run}x.s" == decode((await queue.get()).data).task_id


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("task.a.*", "task.a.*", True),
        ("task.a.>", "task.a.*", True),
        ("task.>", "task.a.g.*", True),
        (">", "task.a.*", True),
        ("task.*.*", "task.a.*", True),
        ("task.a.*", "task.a.>", False),
        ("task.a.*", "task.a.g.*", False),
        ("task.a.g.*", "task.a.*", False),
        ("task.a.b", "task.a.*", False),
        ("task.a.*.>", "task.a.*", False),
    ],
)
def test_a_filter_covers_another_when_it_takes_all_of_it(wide: str, narrow: str, expected: bool) -> None:
    assert expected is covers(wide, narrow)
