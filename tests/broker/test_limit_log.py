"""The stream of limits: it is made when it is needed, decided about by one, followed live, and purged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from uuid_utils import uuid7

from penstock.broker import names
from penstock.broker.embedded.server import EmbeddedBroker
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store, open_store
from penstock.config.limits import PARTITIONS
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict
from penstock.engine.limits.names import LimitKind, LimitName
from penstock.engine.limits.records import Allowed, Decided, Released, Requested, decode
from tests.support.waiting import until_true

ALL = range(PARTITIONS)


def limit(scope: str = "") -> LimitName:
    return LimitName(LimitKind.EXECUTIONS, scope or uuid7().hex)


def requested(name: LimitName, holder: str) -> Requested:
    return Requested(name=name, holder=holder, run_id="r", allowed=Allowed(1))


def decided(name: LimitName, upto: int) -> Decided:
    return Decided(name=name, upto=upto, at=1.0, allowed=Allowed(1))


async def stored(store: Store, name: LimitName) -> list[object]:
    pages = store.limit_log.stored(names.partition(name.id), 0)
    return [decode(one.data) async for page in pages for one in page if names.limit_of(one.subject)[0] == name.id]


@pytest.fixture
async def without(store: Store) -> AsyncIterator[Store]:
    """No stream of limits is there."""
    await store.broker.remove(f"STREAM.DELETE.{names.LIMITS}")
    return store


async def test_nothing_is_there_before_somebody_asks(without: Store) -> None:
    assert await without.limit_log.tip() is None
    await (await without.limit_log.request(requested(limit(), "a")))
    tip = await without.limit_log.tip()
    assert tip is not None
    assert tip.seq == 1


async def test_whoever_waits_for_the_stream_is_told_when_it_is_made(
    without: Store, broker_settings: BrokerSettings
) -> None:
    made = asyncio.Event()
    async with open_store(broker_settings, "other") as other, other.limit_log.when_made(made.set):
        await other.broker.flush()
        await without.limit_log.make()
        await asyncio.wait_for(made.wait(), 5)
        await other.limit_log.make()  # it is there


async def test_a_repeated_request_is_stored_once_and_a_release_as_often_as_it_comes(store: Store) -> None:
    name = limit()
    for _ in range(2):
        await (await store.limit_log.request(requested(name, "a")))
        await (await store.limit_log.release(name.id, Released(holder="a", why="done")))
    assert await stored(store, name) == [requested(name, "a"), *[Released(holder="a", why="done")] * 2]


async def test_of_two_owners_one_decides(store: Store) -> None:
    name = limit()
    await store.limit_log.make()
    first = await store.limit_log.decide(decided(name, 1), 0)
    with pytest.raises(Conflict):
        await store.limit_log.decide(decided(name, 2), 0)
    second = await store.limit_log.decide(decided(name, 3), first)
    assert second > first
    assert await stored(store, name) == [decided(name, 1), decided(name, 3)]


async def test_what_is_asked_is_delivered_live_and_decisions_are_not(store: Store) -> None:
    name, other, found = limit(), limit(), list[Delivery]()
    await (await store.limit_log.request(requested(name, "before")))
    async with store.limit_log.follow({names.partition(name.id)}, found.append, lambda: None) as following:
        await store.limit_log.decide(decided(name, 1), 0)
        await (await store.limit_log.request(requested(name, "after")))
        await (await store.limit_log.request(requested(other, "other")))
        await (await store.limit_log.release(name.id, Released(holder="last")))
        await until_true(lambda: bool(found) and b"last" in found[-1].data)
    holders = [decode(one.data).holder for one in found]  # type: ignore[union-attr]
    assert [holder for holder in holders if holder != "other"] == ["after", "last"]
    assert (names.partition(other.id) == names.partition(name.id)) is ("other" in holders)
    assert found[0].seq > following.tip.seq


async def test_all_partitions_are_followed_at_once(store: Store) -> None:
    await store.limit_log.make()
    found, limits = list[Delivery](), [limit() for _ in range(20)]
    async with store.limit_log.follow(ALL, found.append, lambda: None):
        for name in limits:
            await (await store.limit_log.request(requested(name, "a")))
        await until_true(lambda: len(found) == len(limits))
    assert [names.limit_of(one.subject) for one in found] == [(name.id, False) for name in limits]


async def test_a_follower_is_told_when_its_stream_is_deleted(without: Store) -> None:
    lost = asyncio.Event()
    await without.limit_log.make()
    async with without.limit_log.follow(ALL, lambda _: None, lost.set):
        await without.broker.remove(f"STREAM.DELETE.{names.LIMITS}")
        await asyncio.wait_for(lost.wait(), 10)
    await without.limit_log.make_again()
    assert (await without.limit_log.tip()) is not None


async def test_nothing_is_taken_behind_a_gap(store: Store) -> None:
    name, found, lost = limit(), list[Delivery](), asyncio.Event()
    await store.limit_log.make()
    async with store.limit_log.follow(ALL, found.append, lost.set) as following:
        await (await store.limit_log.request(requested(name, "first")))
        await until_true(lambda: len(found) == 1)
        receive, dropped = following.pull._take, list[Delivery]()
        following.pull._take = dropped.append
        await (await store.limit_log.request(requested(name, "on its way while the connection was lost")))
        await until_true(lambda: len(dropped) == 1)
        following.pull._take, left = receive, following.pull.left
        for holder in ("second", "third"):
            await (await store.limit_log.request(requested(name, holder)))
        await asyncio.wait_for(lost.wait(), 10)
        await until_true(lambda: following.pull.left == left - 2)
    assert ["first"] == [decode(one.data).holder for one in found]  # type: ignore[union-attr]


async def test_a_follower_is_told_when_the_broker_is_restarted(store: Store, embedded: EmbeddedBroker) -> None:
    lost = asyncio.Event()
    await store.limit_log.make()
    async with store.limit_log.follow(ALL, lambda _: None, lost.set):
        embedded.stop()
        embedded.start()
        await asyncio.wait_for(lost.wait(), 15)


async def test_a_purge_removes_what_is_older_of_one_partition_only(store: Store) -> None:
    name, other = limit(), limit()
    while names.partition(other.id) == names.partition(name.id):
        other = limit()
    await (await store.limit_log.request(requested(name, "a")))
    await (await store.limit_log.request(requested(other, "a")))
    last = await store.limit_log.decide(decided(name, 1), 0)
    for nothing in (0, 1):
        assert 0 == await store.limit_log.purge(names.partition(name.id), nothing)
    assert await stored(store, name) == [requested(name, "a"), decided(name, 1)]
    await store.limit_log.purge(names.partition(name.id), last)
    assert await stored(store, name) == [decided(name, 1)]
    assert await stored(store, other) == [requested(other, "a")]

    await store.limit_log.purge(names.partition(name.id), last + 1)
    assert await stored(store, name) == []
    assert await store.limit_log.decide(decided(name, 9), 0) > last  # as if there had never been one


async def test_it_is_known_which_runs_have_asked_since_the_stream_was_made(without: Store) -> None:
    await without.limit_log.make()
    assert await without.limit_log.not_asked([1, 2, 31]) == {1, 2, 31}
    await without.limit_log.note_asked([1, 31])
    assert await without.limit_log.not_asked([1, 2, 31]) == {2}
    await without.limit_log.purge(1, 1000)
    assert await without.limit_log.not_asked([1, 2, 31]) == {2}
