"""A watcher may be slow: what waits for it is bounded, and it sees all the same every event, in order."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from penstock.broker import names
from penstock.broker.store import Store
from penstock.broker.streams import watch
from penstock.config.process.background import all_of
from penstock.engine.errors import NotFound
from tests.support.waiting import until_true

RUN_ID = "1" * 32
BODY = b'{"n":%d}'


@pytest.mark.parametrize("bound", ["COPIES_MAX", "COPIES_BYTES_MAX"])
async def test_a_slow_watcher_holds_little_and_misses_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    run_id = RUN_ID.replace("1", "2") if bound == "COPIES_MAX" else RUN_ID
    monkeypatch.setattr(watch, bound, 10 if bound == "COPIES_MAX" else 10 * len(BODY))
    held = list[watch.Copies]()
    made = watch.Copies

    def noted(wakes: watch.Wakes | None) -> watch.Copies:
        held.append(made(wakes))
        return held[-1]

    monkeypatch.setattr(watch, "Copies", noted)
    async with aclosing(watch.batches(store.broker, store.reader, run_id, 0)) as batches:
        assert not await anext(batches)
        most = 0
        for begin in range(0, 100, 20):
            sent = [store.publisher.send(names.history_subject(run_id), BODY % n) for n in range(begin, begin + 20)]
            await all_of([_answer(one) for one in sent])
            await store.broker.flush()
            most = max(most, len(held[0]._waiting))
        seen = list[bytes]()
        while len(seen) < 100:
            seen += [one.data for one in await anext(batches)]

    assert seen == [BODY % n for n in range(100)]
    assert most <= 12


async def test_who_waits_for_an_event_gets_all_before_it_and_reads_what_is_missing(store: Store) -> None:
    run_id, subject = RUN_ID.replace("1", "3"), names.history_subject(RUN_ID.replace("1", "3"))
    await store.publisher.send(subject, BODY % 0)
    async with store.history.run_events(run_id, lambda body: body == BODY % 3) as events:
        assert [[BODY % 0]] == [[one.data for one in page] async for page in events.stored()]
        for number in range(1, 4):
            await store.publisher.send(subject, BODY % number)
        following = await events.more()
        assert following is not None
        assert [BODY % 1, BODY % 2, BODY % 3] == [one.data for one in following]
        events._copies._waiting.clear()
        await store.publisher.send(subject, BODY % 9)
        await until_true(lambda: len(events._copies._waiting) == 1)
        events._copies._waiting.clear()  # as when it is lost on the way
        await store.publisher.send(subject, BODY % 3)
        assert await events.more() is None
        assert [[BODY % 9, BODY % 3]] == [[one.data for one in page] async for page in events.stored()]


async def test_nothing_comes_of_a_run_behind_the_end_of_the_block(store: Store) -> None:
    run_id = RUN_ID.replace("1", "4")
    async with store.history.run_events(run_id, lambda body: True) as events:
        subscription = events._subscription
    await store.publisher.send(names.history_subject(run_id), BODY % 0)
    await store.broker.flush()
    assert not events._copies._waiting
    assert subscription._id not in store.broker.client._subs
    assert subscription._id not in store.broker.client.receivers


async def test_the_broker_is_told_of_the_end_although_nothing_else_is_written(store: Store) -> None:
    run_id, name = RUN_ID.replace("1", "5"), names.watch_subject(RUN_ID.replace("1", "5"))
    async with store.history.run_events(run_id, lambda body: True):
        await store.broker.flush()
        assert await _has_receivers(store, name)
    assert store.broker.unwritten > 0
    await until_true(lambda: store.broker.unwritten == 0)
    assert not await _has_receivers(store, name)


async def _has_receivers(store: Store, subject: str) -> bool:
    try:
        async with asyncio.timeout(0.1):
            await store.broker.request(subject)
    except NotFound:
        return False
    except TimeoutError:
        return True
    raise AssertionError("nobody answers there")


async def _answer(sent) -> bytes:  # type: ignore[no-untyped-def]
    return bytes(await sent)
