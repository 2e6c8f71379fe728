"""Limits in a real shard: how many executions are out at a time, and who gets the next slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path

import orjson
import pytest
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.limits import backstop, limit_owner
from penstock.actors.runs.loading import LoadedRun, load
from penstock.actors.runs.shard import Shard
from penstock.broker import names
from penstock.broker.limits.limit_log import LimitLog
from penstock.broker.records.limit_configs import Place
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.broker.worker_messages import TaskPayload
from penstock.config.settings import BrokerSettings
from penstock.engine.limits.configs import LimitConfig, LimitOverride
from penstock.engine.limits.names import LimitKind, LimitName, limit_id
from penstock.engine.limits.records import Allowed, Released, Requested
from penstock.engine.run.state import RunStatus, StepStatus
from tests.support.limits import Counting, asks, decided, held, holding, records, waiting
from tests.support.own_broker import own_broker
from tests.support.world import Echo, chain, echo, ended, register


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


async def test_who_has_no_limits_makes_no_stream_and_asks_nothing(store: Store, shard: Shard) -> None:
    before = await store.limit_log.tip()  # None unless another test of this process has used limits
    definition, digest = await register(store, chain("none", 1))
    async with echo(store, "none.echo"):
        run = await ended(store, await run_operations.start(store, definition, digest, Raw(b"1")))
    assert run.status is RunStatus.COMPLETED
    after = await store.limit_log.tip()
    assert (before and (before.created, before.seq)) == (after and (after.created, after.seq))


async def test_never_more_executions_are_out_than_the_limit(store: Store, shard: Shard) -> None:
    definition, digest = await register(store, chain("two", 1, concurrency=[{"limit": 2}]))
    counting = Counting()
    async with echo(store, "two.echo", counting) as worker:
        run_ids = await run_operations.start_all(store, definition, digest, [Raw(b"%d" % n) for n in range(20)])
        runs = [await ended(store, run_id) for run_id in run_ids]
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    assert set(worker.seen.values()) == {1}
    assert counting.most == 2


async def test_an_owner_that_is_not_notified_of_the_first_limit_finds_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_owner, "LOOK_S", 0.05)
    monkeypatch.setattr(LimitLog, "when_made", lambda log, notify: nullcontext())
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            async with open_store(broker.settings, "shard") as own, open_shard(own, new_member("shard")):
                assert await store.limit_log.tip() is None
                definition, digest = await register(store, chain("unheard", 1, concurrency=[{"limit": 1}]))
                async with echo(store, "unheard.echo"):
                    run = await ended(store, await run_operations.start(store, definition, digest, Raw(b"1")))
    assert run.status is RunStatus.COMPLETED


async def test_a_key_has_a_limit_of_its_own(store: Store, shard: Shard) -> None:
    limit = {"limit": 1, "key": "input.tenant"}
    out, most = dict[str, set[str]](), 0

    async def counting(worker: Echo, task: TaskPayload) -> None:
        nonlocal most
        mine = out.setdefault(bytes(task.input).decode(), set())
        mine.add(task.task_id)
        assert len(mine) == 1
        most = max(most, sum(map(len, out.values())))
        await asyncio.sleep(0.02)
        mine.remove(task.task_id)
        await worker.complete(task)

    definition, digest = await register(store, chain("keyed", 1, concurrency=[limit]))
    inputs = [Raw(b'{"tenant":%d}' % (n % 5)) for n in range(20)]
    async with echo(store, "keyed.echo", counting):
        run_ids = await run_operations.start_all(store, definition, digest, inputs)
        runs = [await ended(store, run_id) for run_id in run_ids]
    assert [run.error for run in runs] == [None] * 20
    assert most > 1


async def test_keys_of_the_same_text_are_one(store: Store, shard: Shard) -> None:
    counting = Counting()
    async with echo(store, "texts.echo", counting):
        definition, digest = await register(store, chain("texts", 1, concurrency=[{"limit": 1, "key": "input"}]))
        inputs = [Raw(text) for text in (b"1", b'"1"', b"1", b'"1"')]
        run_ids = await run_operations.start_all(store, definition, digest, inputs)
        runs = [await ended(store, run_id) for run_id in run_ids]
    assert [run.error for run in runs] == [None] * 4
    assert counting.most == 1


@pytest.mark.parametrize(
    ("given", "more", "error"),
    [
        (b"{}", {"concurrency": [{"limit": 1, "key": "input.tenant"}]}, "tenant"),
        (b'{"a":[1]}', {"concurrency": [{"limit": 1, "key": "input.a"}]}, 'key of the limit "bad.s0" gives an array'),
        (b'{"a":{}}', {"concurrency": [{"limit": 1, "fair_by": "input.a"}]}, "fair_by of the limit"),
        (b'{"a":101}', {"concurrency": [{"limit": 1}], "priority": "input.a"}, "priority gives 101"),
        (b'{"a":"1"}', {"rate_limit": [{"limit": 1, "per": "1s"}], "priority": "input.a"}, 'priority gives "1"'),
        (b'"%b"' % (b"x" * 1025), {"concurrency": [{"limit": 1, "key": "input"}]}, "1025 characters, 1024 is the most"),
    ],
)
async def test_an_expression_that_fails_ends_the_step(
    store: Store, shard: Shard, given: bytes, more: dict[str, object], error: str
) -> None:
    definition, digest = await register(store, chain("bad", 1, **more))
    run = await ended(store, await run_operations.start(store, definition, digest, Raw(given)))
    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert error in run.error


async def test_an_expression_of_the_workflow_that_fails_ends_the_run(store: Store, shard: Shard) -> None:
    document = {**chain("badrun", 1), "concurrency": [{"limit": 1, "key": "input.tenant"}]}
    definition, digest = await register(store, document)
    run = await ended(store, await run_operations.start(store, definition, digest, Raw(b'{"tenant":[]}')))
    assert run.status is RunStatus.FAILED
    assert run.error == 'key of the limit "badrun" gives an array: its value must have a text'


async def test_a_step_whose_condition_does_not_hold_asks_for_nothing(store: Store, shard: Shard) -> None:
    limit = {"limit": 0, "scope": "nobody"}
    definition, digest = await register(store, chain("cond", 1, when="input.go", concurrency=[limit]))
    run = await ended(store, await run_operations.start(store, definition, digest, Raw(b'{"go":false}')))
    assert run.status is RunStatus.COMPLETED
    assert run.steps["s0"].status is StepStatus.SKIPPED
    assert await asks(store, "nobody") == []


async def test_never_more_runs_go_on_than_the_limit(store: Store, shard: Shard) -> None:
    counting = Counting()
    document = {**chain("runs", 2), "concurrency": [{"limit": 3}]}
    definition, digest = await register(store, document)
    async with echo(store, "runs.echo", counting) as worker:
        run_ids = await run_operations.start_all(store, definition, digest, [Raw(b"%d" % n) for n in range(12)])
        runs = [await ended(store, run_id) for run_id in run_ids]
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    assert len(worker.seen) == 24
    assert counting.most <= 3


async def test_a_singleton_skips_who_comes_while_it_runs(store: Store, shard: Shard) -> None:
    async with held(store, "single") as first:
        document = {**chain("single", 1), "concurrency": [{"limit": 1, "on_limit": "skip"}]}
        definition, digest = await register(store, document)
        one = await run_operations.start(store, definition, digest, Raw(b"1"))
        await first.begun(one)
        two = await ended(store, await run_operations.start(store, definition, digest, Raw(b"2")))
        first.go.set()
        run = await ended(store, one)
    assert (run.status, two.status, two.error) == (RunStatus.COMPLETED, RunStatus.CANCELLED, "limit")


async def test_a_newer_run_replaces_who_waits_or_else_the_oldest_holder(store: Store, shard: Shard) -> None:
    async with held(store, "newest") as tasks:
        document = {**chain("newest", 1), "concurrency": [{"limit": 1, "on_limit": "replace"}]}
        definition, digest = await register(store, document)
        one = await run_operations.start(store, definition, digest, Raw(b"1"))
        await tasks.begun(one)
        two = await run_operations.start(store, definition, digest, Raw(b"2"))
        await tasks.begun(two)
        first = await ended(store, one)
        tasks.go.set()
        second = await ended(store, two)
        third = await ended(store, await run_operations.start(store, definition, digest, Raw(b"3")))
    assert (first.status, first.error) == (RunStatus.CANCELLED, "replaced")
    assert (second.status, third.status) == (RunStatus.COMPLETED, RunStatus.COMPLETED)


async def test_several_limits_are_taken_without_a_deadlock(store: Store, shard: Shard) -> None:
    counting = Counting()
    limits = [{"limit": 2, "scope": scope} for scope in ("c", "a", "b")]
    definitions = [
        await register(store, chain(f"many{n}", 1, concurrency=order, task="many.echo"))
        for n, order in enumerate((limits, limits[::-1], [limits[1], limits[0], limits[2]]))
    ]
    async with echo(store, "many.echo", counting):
        inputs = [Raw(b"%d" % n) for n in range(10)]
        started = [await run_operations.start_all(store, *definition, inputs) for definition in definitions]
        runs = [await ended(store, run_id) for run_ids in started for run_id in run_ids]
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    assert counting.most == 2


async def test_who_has_a_higher_priority_is_served_first(store: Store, shard: Shard) -> None:
    async with held(store, "first") as tasks:
        document = chain("first", 1, concurrency=[{"limit": 1}], priority="input")
        definition, digest = await register(store, document)
        first = await run_operations.start(store, definition, digest, Raw(b"0"))
        await tasks.begun(first)
        inputs = [Raw(b"%d" % n) for n in (1, 3, 2, 3)]
        run_ids = [await run_operations.start(store, definition, digest, given) for given in inputs]
        await waiting(shard, "first.s0", 4)
        tasks.go.set()
        for run_id in run_ids:
            await ended(store, run_id)
    assert tasks.inputs == [b"0", b"3", b"3", b"2", b"1"]


async def test_turns_are_taken_between_fair_values(store: Store, shard: Shard) -> None:
    async with held(store, "fair") as tasks:
        document = chain("fair", 1, concurrency=[{"limit": 1, "fair_by": "input.tenant"}])
        definition, digest = await register(store, document)
        first = await run_operations.start(store, definition, digest, Raw(b'{"tenant":"a"}'))
        await tasks.begun(first)
        inputs = [Raw(b'{"tenant":"%b"}' % tenant) for tenant in (b"a", b"a", b"a", b"a", b"b", b"b")]
        run_ids = await run_operations.start_all(store, definition, digest, inputs)
        await waiting(shard, "fair.s0", 6)
        tasks.go.set()
        for run_id in run_ids:
            await ended(store, run_id)
    assert [orjson.loads(given)["tenant"] for given in tasks.inputs] == ["a", "b", "a", "b", "a", "a", "a"]


async def test_no_span_sees_more_than_the_rate(store: Store, shard: Shard) -> None:
    document = chain("rate", 1, rate_limit=[{"limit": 5, "per": "500ms"}])
    definition, digest = await register(store, document)
    async with echo(store, "rate.echo"):
        run_ids = await run_operations.start_all(store, definition, digest, [Raw(b"%d" % n) for n in range(12)])
        for run_id in run_ids:
            await ended(store, run_id)
    times = sorted(one.at for one in await decided(store, "rate.s0") for _ in one.granted)
    assert len(times) == 12
    assert all(later - earlier >= 0.5 for earlier, later in zip(times, times[5:], strict=False))
    assert times[-1] - times[0] < 2


async def test_what_a_run_held_is_free_when_it_is_cancelled(store: Store, shard: Shard) -> None:
    async with held(store, "gone") as tasks:
        definition, digest = await register(store, chain("gone", 1, concurrency=[{"limit": 1}]))
        one = await run_operations.start(store, definition, digest, Raw(b"1"))
        await tasks.begun(one)
        two, three = [await run_operations.start(store, definition, digest, Raw(b"%d" % n)) for n in (2, 3)]
        await waiting(shard, "gone.s0", 2)
        await run_operations.cancel(store, two)
        await run_operations.cancel(store, one)
        await tasks.begun(three)
        tasks.go.set()
        assert (await ended(store, three)).status is RunStatus.COMPLETED
    assert two not in {task.run_id for task in tasks.tasks}
    await waiting(shard, "gone.s0", 0)


async def test_a_child_runs_under_the_slot_of_its_parent(store: Store, shard: Shard) -> None:
    limit = {"concurrency": [{"limit": 1, "scope": "family"}]}
    await register(store, {**chain("inner", 1), **limit})
    outer = {"name": "outer", "steps": [{"id": "c", "type": "sub_workflow", "config": {"workflow": "inner"}}], **limit}
    definition, digest = await register(store, outer)
    async with echo(store, "inner.echo"):
        run = await ended(store, await run_operations.start(store, definition, digest, Raw(b"1")))
    assert run.status is RunStatus.COMPLETED
    assert [one.granted for one in await decided(store, "family", LimitKind.RUNS)][1:] == []


async def test_the_owner_says_who_holds_and_who_waits(store: Store, shard: Shard) -> None:
    async with held(store, "seen") as tasks:
        definition, digest = await register(store, chain("seen", 1, concurrency=[{"limit": 1}]))
        first = await run_operations.start(store, definition, digest, Raw(b"0"))
        await tasks.begun(first)
        others = []
        for n in range(3):
            others.append(await run_operations.start(store, definition, digest, Raw(b"%d" % n)))
            await waiting(shard, "seen.s0", n + 1)
        name = LimitName(LimitKind.EXECUTIONS, "seen.s0")
        seen = await store.limit_questions.one(name, named=2, holder=f"{others[2]}.s0.0.1")
        listed = await store.limit_questions.busiest(10, scope="seen.s0")
        unknown = await store.limit_questions.one(LimitName(LimitKind.EXECUTIONS, "unknown"))
        tasks.go.set()
        for run_id in others:
            await ended(store, run_id)
    assert seen is not None
    assert [one.run_id for one in seen.holders] == [first]
    assert [(one.place, one.run_id) for one in seen.waiting] == [(1, others[0]), (2, others[1])]
    assert (seen.waiting_total, seen.place, seen.allowed.limit) == (3, 3, 1)
    assert [(one.name, one.waiting_total, one.waiting) for one in listed] == [(name, 3, ())]
    assert unknown is None


async def test_an_override_counts_at_once_also_for_who_waits(store: Store, shard: Shard) -> None:
    async with held(store, "over") as tasks:
        definition, digest = await register(store, chain("over", 1, concurrency=[{"limit": 1}]))
        run_ids = []
        for n in range(4):
            run_ids.append(await run_operations.start(store, definition, digest, Raw(b"%d" % n)))
            await holding(shard, "over.s0", 1)
            await waiting(shard, "over.s0", n)  # one after the other, so that the last one is the last in the line
        place = (LimitKind.EXECUTIONS, "over.s0")
        await store.limit_configs.override(place, None, LimitOverride(Allowed(3), "2026-01-01T00:00:00Z"))
        await waiting(shard, "over.s0", 1)
        await store.limit_configs.override(place, None, LimitOverride(Allowed(0), "2026-01-01T00:00:00Z"))
        tasks.go.set()
        for run_id in run_ids[:3]:
            await ended(store, run_id)
        await waiting(shard, "over.s0", 1)
        await store.limit_configs.take_back(place, None)
        assert (await ended(store, run_ids[3])).status is RunStatus.COMPLETED


async def test_an_override_counts_whose_notification_comes_before_it_can_be_read(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = 2

    async def since(revision: int) -> tuple[dict[Place, LimitConfig | None], int]:
        nonlocal early
        early -= 1
        return ({}, revision) if early >= 0 else await read(revision)

    async with held(store, "soon") as tasks:
        definition, digest = await register(store, chain("soon", 1, concurrency=[{"limit": 1}]))
        run_ids = [await run_operations.start(store, definition, digest, Raw(b"%d" % n)) for n in range(2)]
        await waiting(shard, "soon.s0", 1)
        read = shard.store.limit_configs.since
        monkeypatch.setattr(shard.store.limit_configs, "since", since)
        more = LimitOverride(Allowed(2), "2026-01-01T00:00:00Z")
        await store.limit_configs.override((LimitKind.EXECUTIONS, "soon.s0"), None, more)
        await waiting(shard, "soon.s0", 0)
        tasks.go.set()
        for run_id in run_ids:
            await ended(store, run_id)
    assert early < 0


async def test_the_numbers_of_holders_and_waiting_are_metrics(store: Store, shard: Shard) -> None:
    async with held(store, "counted") as tasks:
        definition, digest = await register(store, chain("counted", 1, concurrency=[{"limit": 1, "key": "input"}]))
        inputs = [Raw(b"%d" % (n % 2)) for n in range(5)]
        run_ids = [await run_operations.start(store, definition, digest, given) for given in inputs]
        await waiting(shard, "counted.s0", 3)
        await holding(shard, "counted.s0", 2)
        of = {"kind": "executions", "scope": "counted.s0"}
        samples = {one.name: one.value for one in shard.store.meters.samples() if one.labels == of}
        tasks.go.set()
        for run_id in run_ids:
            await ended(store, run_id)
    decisions = [one for one in shard.store.meters.samples() if one.name == "penstock_limit_decisions_total"]
    assert samples == {"penstock_limit_holders": 2, "penstock_limit_waiting": 3}
    assert decisions[0].labels == {"kind": "executions"}
    assert decisions[0].value >= 2


async def test_a_slot_whose_holder_does_not_hold_it_is_given_back(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with held(store, "astray") as tasks:
        definition, digest = await register(store, chain("astray", 1, concurrency=[{"limit": 2}]))
        name = LimitName(LimitKind.EXECUTIONS, "astray.s0")
        gone = new_run_id()
        lost = Requested(name=name, holder=f"{gone}.s0.0.1", run_id=gone, allowed=Allowed(2), step_id="s0")
        await (await store.limit_log.request(lost))
        run_ids = [await run_operations.start(store, definition, digest, Raw(b"%d" % n)) for n in range(2)]
        await waiting(shard, "astray.s0", 1)
        for bound in ("OLD_S", "SURE_S", "IDLE_S", "EVERY_S"):
            monkeypatch.setattr(backstop, bound, 0.01)
        await waiting(shard, "astray.s0", 0)
        tasks.go.set()
        assert {(await ended(store, run_id)).status for run_id in run_ids} == {RunStatus.COMPLETED}
    counted = [one for one in shard.store.meters.samples() if one.name == "penstock_limit_backstop_releases_total"]
    assert [one.value for one in counted] == [1]


async def test_a_slot_is_looked_at_twice_also_when_its_holder_has_another_one(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = asyncio.Queue[str]()

    async def noted(of: Store, run_id: str) -> LoadedRun:
        if run_id in (first, second):
            looked_at.put_nowait(run_id)
        return await load(of, run_id)

    async def takes(run_id: str, scope: str) -> None:
        name = LimitName(LimitKind.RUNS, scope)
        lost = Requested(name=name, holder=f"{run_id}.0", run_id=run_id, allowed=Allowed(9))
        await (await store.limit_log.request(lost))

    first, second = new_run_id(), new_run_id()
    async with asyncio.timeout(60):
        for scope in ("several", "single"):
            await takes(first, scope)
            await holding(shard, scope, 1)
        monkeypatch.setattr(backstop, "load", noted)
        monkeypatch.setattr(backstop, "SURE_S", 1e6)
        for bound in ("OLD_S", "IDLE_S", "EVERY_S"):
            monkeypatch.setattr(backstop, bound, 0.01)
        assert [await looked_at.get() for _ in range(2)] == [first, first]
        await takes(second, "several")
        assert await looked_at.get() == second

    released = [one.holder for one in await records(store) if isinstance(one, Released)]
    assert f"{first}.0" not in released


async def test_a_limit_that_was_given_up_decides_nothing_more(store: Store, shard: Shard) -> None:
    document = chain("given", 1, rate_limit=[{"limit": 1, "per": "1h"}])
    definition, digest = await register(store, document)
    async with echo(store, "given.echo"):
        await ended(store, await run_operations.start(store, definition, digest, Raw(b"1")))
        waits = await run_operations.start(store, definition, digest, Raw(b"2"))
        await waiting(shard, "given.s0", 1)
        number = names.partition(limit_id(LimitKind.RATE, "given.s0", None))
        [actor] = [one for one in shard.limits.partitions[number].limits.values() if one.state.waiting_total]
        shard.limits.forget(number)
        place = (LimitKind.RATE, "given.s0")
        await store.limit_configs.override(place, None, LimitOverride(Allowed(9, 3600.0), "2026-01-01T00:00:00Z"))
        actor.wake()
        assert actor.pending() == []
        shard.limits.own(number)
        assert (await ended(store, waits)).status is RunStatus.COMPLETED


async def test_a_thousand_keys_have_a_thousand_limits(store: Store, shard: Shard) -> None:
    definition, digest = await register(store, chain("thousand", 1, concurrency=[{"limit": 1, "key": "input"}]))
    async with echo(store, "thousand.echo") as worker:
        run_ids = await run_operations.start_all(store, definition, digest, [Raw(b"%d" % n) for n in range(1000)])
        runs = [await ended(store, run_id, 60) for run_id in run_ids]
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    assert len(worker.seen) == 1000
    assert {len(one.granted) for one in await decided(store, "thousand.s0")} == {1}
