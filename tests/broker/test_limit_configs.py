"""The bucket `limits`."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from penstock.broker import names
from penstock.broker.store import Store
from penstock.engine.limits.configs import LimitConfig, LimitOverride, RegisteredLimit
from penstock.engine.limits.names import LimitKind
from penstock.engine.limits.records import Allowed

AT = "2026-01-01T00:00:00.000Z"


def new_scope() -> str:
    return f"scope.{uuid4().hex}"


async def test_what_is_registered_and_overridden_is_read_back(store: Store) -> None:
    configs, scope = store.limit_configs, new_scope()
    new = RegisteredLimit("a", "1", Allowed(5), at=AT)
    await configs.register((LimitKind.RUNS, scope), new)
    await configs.override((LimitKind.RATE, scope), "key", LimitOverride(Allowed(1, 60.0), AT, "ann"))
    found = await configs.of_scope(scope)
    assert found == {
        (LimitKind.RUNS, scope): LimitConfig(LimitKind.RUNS, scope, (new,)),
        (LimitKind.RATE, scope): LimitConfig(
            LimitKind.RATE, scope, keys={"key": LimitOverride(Allowed(1, 60.0), AT, "ann")}
        ),
    }
    assert (await configs.all()).items() >= found.items()
    assert await configs.get_many([(LimitKind.EXECUTIONS, scope)]) == {}


async def test_what_nothing_is_said_of_is_removed(store: Store) -> None:
    configs, place = store.limit_configs, (LimitKind.RUNS, new_scope())
    await configs.register(place, RegisteredLimit("a", "1", Allowed(5), at=AT))
    await configs.override(place, None, LimitOverride(Allowed(1), AT))
    await configs.forget(place, "a")
    assert (await configs.get_many([place]))[place].registered == ()
    assert await configs.take_back(place, None)
    assert await configs.get_many([place]) == {}
    assert not await configs.take_back(place, None)


async def test_changes_at_once_are_all_kept(store: Store) -> None:
    configs, place = store.limit_configs, (LimitKind.EXECUTIONS, new_scope())
    workflows = [f"w{number}" for number in range(8)]
    await asyncio.gather(*(configs.register(place, RegisteredLimit(one, "1", Allowed(5), at=AT)) for one in workflows))
    found = (await configs.get_many([place]))[place]
    assert sorted(one.workflow for one in found.registered) == workflows


async def test_an_owner_learns_of_changes_and_removals(store: Store) -> None:
    configs, place, told = store.limit_configs, (LimitKind.RUNS, new_scope()), asyncio.Event()
    _, before = await configs.since(0)
    async with configs.notifying(told.set):
        await configs.register(place, RegisteredLimit("a", "1", Allowed(5), at=AT))
        await asyncio.wait_for(told.wait(), 5)
    changed, newest = await configs.since(before)
    assert [one.registered[0].allowed for one in changed.values() if one] == [Allowed(5)]
    await configs.forget(place, "a")
    assert await configs.since(newest) == ({place: None}, newest + 1)


async def test_nothing_is_written_when_the_same_counts_already(store: Store) -> None:
    configs, place = store.limit_configs, (LimitKind.RUNS, new_scope())
    new = RegisteredLimit("a", "1", Allowed(5), at=AT)
    await configs.register(place, new)
    _, before = await configs.since(0)
    await configs.register(place, new)
    assert await configs.since(before) == ({}, before)


async def test_what_is_no_document_counts_for_nothing_and_is_replaced(store: Store) -> None:
    configs, place = store.limit_configs, (LimitKind.RUNS, new_scope())
    await store.bucket(names.LIMIT_CONFIGS).put(f"runs/{place[1]}", b"no document")
    assert await configs.get_many([place]) == {}
    new = RegisteredLimit("a", "1", Allowed(5), at=AT)
    await configs.register(place, new)
    assert (await configs.get_many([place]))[place].registered == (new,)
