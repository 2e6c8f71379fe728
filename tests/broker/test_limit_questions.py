"""Questions to the owners of limits."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from nats.aio.msg import Msg

from penstock.broker import names
from penstock.broker.limits.questions import LimitQuestion, LimitSeen, LimitWaiter, answer_of, question_in
from penstock.broker.store import Store
from penstock.config.limits import PARTITIONS
from penstock.engine.errors import Unavailable
from penstock.engine.limits.names import LimitKind, LimitName
from penstock.engine.limits.records import Allowed, Granted, Released

NAME = LimitName(LimitKind.RUNS, "openai", "acme")
HOLDER = Granted("r.0", "r", at=1.5, order=7)
SEEN = LimitSeen(NAME, Allowed(1), 1, (HOLDER,), 2, (LimitWaiter(1, "s.0", "s"), LimitWaiter(2, "t.a.0.1", "t", "a")))


async def test_nobody_is_asked_before_somebody_uses_a_limit(store: Store) -> None:
    assert await store.limit_log.tip() is None
    assert await store.limit_questions.one(NAME) is None
    assert await store.limit_questions.busiest(10) == []


async def test_the_owner_of_the_partition_answers(store: Store) -> None:
    asked: list[LimitQuestion] = []

    async def answer(msg: Msg) -> None:
        asked.append(question_in(msg.data))
        await store.broker.publish(msg.reply, answer_of([SEEN]))

    async with store.broker.listening(names.limits_question(names.partition(NAME.id)), answer):
        assert await store.limit_questions.one(NAME, 5, "s.0") == SEEN
    assert asked == [LimitQuestion(NAME.id, named=5, holder="s.0")]


async def test_the_busiest_come_first(store: Store) -> None:
    await store.limit_log.make()
    idle = LimitSeen(LimitName(LimitKind.RATE, "a"), Allowed(1, 1.0), tokens=1.0)
    answers = {3: [idle], 4: [SEEN]}
    async with AsyncExitStack() as stack:
        for number in range(PARTITIONS):
            body = answer_of(answers.get(number, []))
            await stack.enter_async_context(store.broker.answering(names.limits_question(number), body))
        await store.broker.flush()
        assert await store.limit_questions.busiest(10) == [SEEN, idle]
        assert await store.limit_questions.busiest(1) == [SEEN]


async def test_a_partition_without_an_owner_is_no_empty_one(store: Store) -> None:
    await used(store)
    with pytest.raises(Unavailable, match="no shard owns the limits of partition"):
        await store.limit_questions.one(NAME, wait_s=0.0)
    async with asyncio.timeout(10):
        with pytest.raises(Unavailable):
            await store.limit_questions.busiest(10, wait_s=0.0)
        subject = names.limits_question(names.partition(NAME.id))
        async with store.broker.answering(subject, answer_of([SEEN])):
            await store.broker.flush()
            assert await store.limit_questions.busiest(10, wait_s=0.0, of_owned=True) == [SEEN]


async def test_a_log_in_which_nothing_was_asked_is_an_empty_one(store: Store) -> None:
    await store.limit_log.make()
    await store.broker.remove(f"STREAM.DELETE.{names.LIMITS}")
    await store.limit_log.make_again()
    assert await store.limit_questions.one(NAME, wait_s=0.0) is None
    assert await store.limit_questions.busiest(10, wait_s=0.0) == []


async def test_an_owner_that_is_not_there_yet_is_waited_for(store: Store) -> None:
    await used(store)
    asking = asyncio.create_task(store.limit_questions.one(NAME, wait_s=60.0))
    await asyncio.sleep(0)
    await store.broker.flush()  # nobody was there
    subject = names.limits_question(names.partition(NAME.id))
    async with store.broker.answering(subject, answer_of([SEEN])), asyncio.timeout(30):
        assert await asking == SEEN


async def used(store: Store) -> None:
    """Have something in the log."""
    await (await store.limit_log.release(NAME.id, Released(holder="nobody.0")))
