"""Limits that outlast their owners: a shard that dies, partitions that move, a log that is shortened or deleted."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs import asking_again
from penstock.actors.runs.loading import LoadedRun, load
from penstock.actors.runs.shard import Shard
from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.config.limits import PARTITIONS
from penstock.config.settings import BrokerSettings
from penstock.engine.limits.names import LimitKind, LimitName, limit_id
from penstock.engine.limits.records import Allowed, Decided, Released, Requested
from penstock.engine.run.state import RunStatus
from tests.support.limits import Counting, asks, decided, held, holding, records, waiting
from tests.support.waiting import until_true
from tests.support.world import chain, echo, ended, register


@asynccontextmanager
async def a_shard(settings: BrokerSettings, name: str = "shard") -> AsyncIterator[Shard]:
    async with open_store(settings, name) as own, open_shard(own, new_member(name)) as opened:
        yield opened


@asynccontextmanager
async def killed_shard(settings: BrokerSettings) -> AsyncIterator[Shard]:
    """A shard that ends as by SIGKILL: its connection is cut, nothing is written or acknowledged any more."""
    async with a_shard(settings) as shard:
        yield shard
        await shard.store.broker.client.close()
        shard.lease.end()


async def test_who_held_and_who_waited_does_so_after_the_death_of_the_owner(
    store: Store, broker_settings: BrokerSettings
) -> None:
    definition, digest = await register(store, chain("after", 1, concurrency=[{"limit": 2}]))
    async with held(store, "after") as tasks:
        async with killed_shard(broker_settings) as shard:
            run_ids = [await run_operations.start(store, definition, digest, Raw(b"%d" % n)) for n in range(6)]
            await waiting(shard, "after.s0", 4)
            await until_true(lambda: len(tasks.tasks) == 2)
        async with a_shard(broker_settings) as shard:
            await waiting(shard, "after.s0", 4)
            assert len({task.task_id for task in tasks.tasks}) == 2
            tasks.go.set()
            runs = [await ended(store, run_id) for run_id in run_ids]
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    granted = [one.holder for decision in await decided(store, "after.s0") for one in decision.granted]
    assert len(granted) == len(set(granted)) == 6


async def test_a_partition_moves_while_runs_wait(store: Store, broker_settings: BrokerSettings) -> None:
    definition, digest = await register(store, chain("moved", 1, concurrency=[{"limit": 2}]))
    counting = Counting()
    async with echo(store, "moved.echo", counting) as worker, a_shard(broker_settings, "one"):
        run_ids = await run_operations.start_all(store, definition, digest, [Raw(b"%d" % n) for n in range(300)])
        async with a_shard(broker_settings, "two") as other:
            await until_true(lambda: len(other.partitions) == 16)
            await until_true(lambda: len(worker.seen) > 100)
        runs = [await ended(store, run_id) for run_id in run_ids]
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    assert counting.most == 2
    assert set(worker.seen.values()) == {1}


def scope_beside(scope: str) -> str:
    """A scope whose limit is in the same partition."""
    partition = names.partition(limit_id(LimitKind.EXECUTIONS, scope, None))
    scopes = (f"beside{n}" for n in range(10_000))
    return next(one for one in scopes if names.partition(limit_id(LimitKind.EXECUTIONS, one, None)) == partition)


async def test_a_log_is_kept_short_and_still_says_all(store: Store, broker_settings: BrokerSettings) -> None:
    definition, digest = await register(store, chain("short", 1, concurrency=[{"limit": 20}]))
    beside = scope_beside("short.s0")
    slow = await register(store, chain("long", 1, concurrency=[{"limit": 1, "scope": beside}]))
    async with held(store, "long") as tasks, echo(store, "short.echo"):
        async with a_shard(broker_settings) as shard:
            kept = [await run_operations.start(store, *slow, Raw(b"0"))]
            await until_true(lambda: len(tasks.tasks) == 1)
            for n in (1, 2):
                kept.append(await run_operations.start(store, *slow, Raw(b"%d" % n)))
                await waiting(shard, beside, n)
            for _ in range(6):
                inputs = [Raw(b"%d" % n) for n in range(400)]
                for run_id in await run_operations.start_all(store, definition, digest, inputs):
                    await ended(store, run_id)
            assert len(await records(store)) < 3200
            assert await asks(store, beside) == []
            waiting_still = [one.waiting for one in await decided(store, beside) if one.waiting]
            assert [one.run_id for one in waiting_still[-1]] == kept[1:]
        async with a_shard(broker_settings) as shard:
            await waiting(shard, beside, 2)
            assert {task.run_id for task in tasks.tasks} == {kept[0]}
            tasks.go.set()
            runs = [await ended(store, run_id) for run_id in kept]
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    assert list(dict.fromkeys(tasks.inputs)) == [b"0", b"1", b"2"]


async def test_a_log_is_shortened_while_somebody_asks_for_a_limit_that_nothing_is_known_of(
    store: Store, broker_settings: BrokerSettings
) -> None:
    """What it asks for is taken, but not folded yet. It needs nothing that is older, and the others keep what they
    need."""
    definition, digest = await register(store, chain("slow", 1, concurrency=[{"limit": 1}]))
    async with held(store, "slow") as tasks, a_shard(broker_settings) as shard:
        run_ids = [await run_operations.start(store, definition, digest, Raw(b"%d" % n)) for n in range(3)]
        await waiting(shard, "slow.s0", 2)
        await until_true(lambda: len(tasks.tasks) == 1)
        limits = shard.limits.partitions[names.partition(limit_id(LimitKind.EXECUTIONS, "slow.s0", None))]
        new = LimitName(LimitKind.EXECUTIONS, scope_beside("slow.s0"))
        ask = Requested(name=new, holder="other.s.0.1", run_id="other", allowed=Allowed(0))
        limits._actor(new.id).take(ask, limits.seq + 1)
        await limits._remove_old()
        assert [one.run_id for one in await asks(store, "slow.s0") if isinstance(one, Requested)] != []
    async with echo(store, "slow.echo"), a_shard(broker_settings) as shard:
        await waiting(shard, "slow.s0", 2)
        tasks.go.set()
        runs = [await ended(store, run_id) for run_id in run_ids]
    assert {run.status for run in runs} == {RunStatus.COMPLETED}


async def test_a_former_owners_first_decision_that_comes_when_nothing_is_stored_any_more_stops_nobody(
    store: Store, broker_settings: BrokerSettings
) -> None:
    """It is stored, as the first one of all. Who asks next makes the owner read it, and who was granted gives back."""
    definition, digest = await register(store, chain("idle", 1, concurrency=[{"limit": 1}]))
    async with echo(store, "idle.echo"):
        async with a_shard(broker_settings):
            former = await run_operations.start(store, definition, digest, Raw(b"1"))
            await ended(store, former)
        first = (await decided(store, "idle.s0"))[0]
        tip = await store.limit_log.tip()
        assert tip is not None
        await store.limit_log.purge(names.partition(first.name.id), tip.seq + 1)
        async with a_shard(broker_settings) as shard:
            await waiting(shard, "idle.s0", 0)
            await store.limit_log.decide(first, 0)
            run = await ended(store, await run_operations.start(store, definition, digest, Raw(b"2")))
            assert run.status is RunStatus.COMPLETED
    assert [one.granted[0].run_id for one in await decided(store, "idle.s0")][:2] == [former, run.run_id]


async def test_a_log_that_is_deleted_by_hand_is_made_again_and_nothing_is_lost(
    store: Store, broker_settings: BrokerSettings
) -> None:
    definition, digest = await register(store, chain("deleted", 1, concurrency=[{"limit": 2}]))
    async with held(store, "deleted") as tasks, a_shard(broker_settings) as shard:
        run_ids = [await run_operations.start(store, definition, digest, Raw(b"%d" % n)) for n in range(6)]
        await waiting(shard, "deleted.s0", 4)
        await until_true(lambda: len(tasks.tasks) == 2)
        await store.broker.remove(f"STREAM.DELETE.{names.LIMITS}")
        await waiting(shard, "deleted.s0", 0)
        await waiting(shard, "deleted.s0", 4)
        assert len({task.task_id for task in tasks.tasks}) == 2
        tasks.go.set()
        assert {(await ended(store, run_id)).status for run_id in run_ids} == {RunStatus.COMPLETED}


async def test_who_waited_asks_again_when_the_log_was_lost_while_no_shard_was_there(
    store: Store, broker_settings: BrokerSettings
) -> None:
    definition, digest = await register(store, chain("restored", 1, concurrency=[{"limit": 1}]))
    async with held(store, "restored") as tasks:
        async with a_shard(broker_settings) as shard:
            run_ids = [await run_operations.start(store, definition, digest, Raw(b"%d" % n)) for n in range(3)]
            await waiting(shard, "restored.s0", 2)
            await until_true(lambda: len(tasks.tasks) == 1)
        await store.broker.remove(f"STREAM.DELETE.{names.LIMITS}")
        async with a_shard(broker_settings) as shard:
            one = await run_operations.start(store, definition, digest, Raw(b"3"))  # nobody has asked before
            await waiting(shard, "restored.s0", 3)
            tasks.go.set()
            assert {(await ended(store, run_id)).status for run_id in [*run_ids, one]} == {RunStatus.COMPLETED}


async def test_a_slot_that_a_run_gave_up_while_it_was_asked_for_again_is_given_back(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition, digest = await register(store, chain("gone", 1, concurrency=[{"limit": 1}]))
    async with held(store, "gone") as tasks, a_shard(broker_settings) as shard:
        run_id = await run_operations.start(store, definition, digest, Raw(b"1"))
        await tasks.begun(run_id)
        earlier = [await load(store, run_id)]
        tasks.go.set()
        await ended(store, run_id)
        await holding(shard, "gone.s0", 0)
        await store.broker.remove(f"STREAM.DELETE.{names.LIMITS}")
        await store.limit_log.make_again()

        async def as_it_was(store: Store, run_id: str) -> LoadedRun:
            return earlier.pop() if earlier else await load(store, run_id)

        monkeypatch.setattr(asking_again, "load", as_it_was)
        await asking_again.ask_again(store, shard.effects, shard.lease, range(PARTITIONS), [run_id], time.monotonic())

        found = [(type(one), one.holder) for one in await records(store) if not isinstance(one, Decided)]
        assert [(Requested, f"{run_id}.s0.0.1"), (Released, f"{run_id}.s0.0.1")] == found


async def test_keys_that_nobody_uses_any_more_are_forgotten(store: Store, broker_settings: BrokerSettings) -> None:
    """In memory and in the log: 2,000 keys of one partition, each used once."""
    definition, digest = await register(store, chain("forgotten", 1, concurrency=[{"limit": 1, "key": "input"}]))
    keys = keys_of_partition("forgotten.s0", 0, 2000)
    async with echo(store, "forgotten.echo"), a_shard(broker_settings) as shard:
        limits = shard.limits.partitions[0].limits
        for at in range(0, len(keys), 500):
            inputs = [Raw(key.encode()) for key in keys[at : at + 500]]
            run_ids = await run_operations.start_all(store, definition, digest, inputs)
            runs = [await ended(store, run_id, 60) for run_id in run_ids]
            assert {run.status for run in runs} == {RunStatus.COMPLETED}
        await until_true(lambda: len(limits) < 700)
        assert not [actor for actor in limits.values() if actor.state.holders or actor.state.waiting_total]
        assert len(await records(store)) < 3 * 700


def keys_of_partition(scope: str, partition: int, count: int) -> list[str]:
    """So many keys of executions, each a number, whose limits belong to the partition."""
    every = (f"{n}" for n in itertools.count())
    mine = (key for key in every if names.partition(limit_id(LimitKind.EXECUTIONS, scope, key)) == partition)
    return list(itertools.islice(mine, count))
