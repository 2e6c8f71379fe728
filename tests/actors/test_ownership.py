"""Who owns the partitions: shards come, leave, die, fall silent and wake up, and every run has one owner that gets on
with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from penstock.actors.control import run_operations
from penstock.actors.control.drain import drain
from penstock.actors.ownership import ownership
from penstock.actors.ownership.membership import Membership, new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.ownership.places import free_places, occupied
from penstock.actors.runs.loading import load
from penstock.actors.runs.shard import Shard
from penstock.actors.runs.shared.broker_clock import BrokerClock
from penstock.actors.runs.shared.lease import LeaseLost, ShardLease, now
from penstock.actors.runs.timers import Timers
from penstock.broker import names
from penstock.broker.nats.headers import SCHEDULE, SCHEDULE_TARGET
from penstock.broker.records.owners import Handled, Member
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import LEASE_S, PARTITIONS
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, Full, NotFound, Unavailable
from penstock.engine.run.commands import SetTimer
from penstock.engine.run.events import StepCompleted
from penstock.engine.run.state import RunStatus
from tests.support.line import line
from tests.support.waiting import until, until_true
from tests.support.world import Echo, chain, echo, ended, register, start

ALL = tuple(range(PARTITIONS))


@asynccontextmanager
async def opened(settings: BrokerSettings, me: str | Member) -> AsyncIterator[Shard]:
    """A shard with a connection of its own."""
    member = new_member(me) if isinstance(me, str) else me
    async with open_store(settings, "shard") as own, open_shard(own, member) as shard:
        yield shard


async def share(*shards: Shard) -> None:
    """Return once all partitions are shared out evenly among these."""

    def shared() -> bool:
        owned = sorted(number for shard in shards for number in shard.partitions)
        counts = sorted(len(shard.partitions) for shard in shards)
        return owned == list(ALL) and counts[-1] - counts[0] <= 1

    await until_true(shared)


async def test_a_shard_that_joins_gets_its_share_and_gives_it_back_when_it_leaves(
    store: Store, broker_settings: BrokerSettings
) -> None:
    definition, digest = await register(store, chain("moving"))
    async with echo(store, "moving.echo") as worker, opened(broker_settings, "a") as one:
        assert ALL == one.partitions
        first = await run_operations.start_all(store, definition, digest, [Raw(b"1")] * 200)
        async with opened(broker_settings, "b") as other:
            await share(one, other)
            second = await run_operations.start_all(store, definition, digest, [Raw(b"1")] * 200)
            await until_true(lambda: worker.seen.total() > 900)
        await share(one)
        runs = [await ended(store, run_id) for run_id in [*first, *second]]
    assert {RunStatus.COMPLETED} == {run.status for run in runs}
    assert {1} == {step.attempts for run in runs for step in run.steps.values()}
    assert {1} == set(worker.seen.values())  # what is handed over is not done again


async def test_a_shard_that_has_everything_reads_it_by_one_consumer_and_parts_with_it_when_another_joins(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "CALM_S", 0.5)
    definition, digest = await register(store, chain("common"))
    runs = list[str]()

    async def many_more() -> None:
        runs.extend(await run_operations.start_all(store, definition, digest, [Raw(b"1")] * 100))

    async with echo(store, "common.echo") as worker, opened(broker_settings, "a") as one:
        [first] = await consumers(store)
        await many_more()
        async with opened(broker_settings, "b") as other:
            await share(one, other)
            await many_more()
            await until(lambda: read_by(store, PARTITIONS))
            assert first not in await consumers(store)
            await many_more()
        await share(one)
        await many_more()
        await until(lambda: read_by(store, 1))
        [last] = await consumers(store)
        assert last != first
        await many_more()
        found = [await ended(store, run_id) for run_id in runs]
        await until(lambda: is_acknowledged(store, last, max(run.seq for run in found)))
    assert {RunStatus.COMPLETED} == {run.status for run in found}
    assert {1} == {step.attempts for run in found for step in run.steps.values()}
    assert {1} == set(worker.seen.values())


async def consumers(store: Store) -> set[str]:
    """Those of engines."""
    listed = (await store.broker.api(f"CONSUMER.NAMES.{names.HISTORY}", {"offset": 0}))["consumers"] or []
    return {name for name in listed if names.engine_consumer_in(name) is not None}


async def read_by(store: Store, count: int) -> bool:
    """Whether so many consumers are there, the same ones as in the claims."""
    claimed = {found.claim.consumer for found in (await store.owners.read()).claims.values()}
    return len(claimed) == count and claimed == await consumers(store)


async def is_acknowledged(store: Store, consumer: str, seq: int) -> bool:
    return (await store.consumers.floor(consumer) or 0) >= seq


async def test_a_log_that_has_lost_its_end_is_read_from_there_on(store: Store, broker_settings: BrokerSettings) -> None:
    """A broker whose machine has crashed uses sequences again that were handled, and noted, before."""
    tip = await store.history.tip()
    handled = Handled(tip.seq + 1000, tip.created)
    await store.owners.note_handled(dict.fromkeys(ALL, handled))
    async with opened(broker_settings, "a") as shard, echo(store, "lost.echo"):
        assert {tip.seq + 1} == set(shard.handled_before.values())
        run = await ended(store, await start(store, chain("lost")))
    assert RunStatus.COMPLETED is run.status


async def test_an_owner_that_has_to_handle_events_again_notes_that_too(
    store: Store, broker_settings: BrokerSettings
) -> None:
    """The log has lost its end while the shard was connected: what is stored there later is new."""
    log = (await store.history.tip()).created
    for _ in range(3):
        await store.history.append(StepCompleted(run_id=new_run_id(), step_id="s0", attempt_number=1))

    async def noted(start: int) -> bool:
        view = await store.owners.read()
        return {start} == {view.handled_before(number, log) for number in ALL}

    async with opened(broker_settings, "a") as shard:
        tip = await store.history.last_seq()
        for start_ in (tip + 1, tip - 1):
            for queue in shard._queues.values():
                queue.events.clear()
                queue.start = start_
            await until(partial(noted, start_))
        shard.lease.end()
    async with opened(broker_settings, "b") as other:
        await until_true(lambda: ALL == other.partitions)
        assert {tip - 1} == {found.claim.start for found in (await store.owners.read()).claims.values()}


async def test_timers_in_memory_move_with_their_runs(store: Store, broker_settings: BrokerSettings) -> None:
    async with opened(broker_settings, "a"):
        run_ids = [await start(store, {**chain(f"due-{n}", 1), "timeout": "1s500ms"}) for n in range(8)]
        await until(lambda: tasks_queued(store, run_ids))
        async with opened(broker_settings, "b"):
            runs = [await ended(store, run_id) for run_id in run_ids]
    assert {"workflow timeout exceeded (1s500ms)"} == {run.error for run in runs}


async def tasks_queued(store: Store, run_ids: Sequence[str]) -> bool:
    found = await store.reader.last(
        names.TASKS, [names.task_subject(f"due-{n}.echo", run_id) for n, run_id in enumerate(run_ids)]
    )
    return len(found) == len(run_ids)


async def test_the_runs_of_a_shard_that_is_cut_off_go_on_at_another_and_what_it_sent_comes_too_late(
    store: Store, broker_settings: BrokerSettings
) -> None:
    definition, digest = await register(store, chain("cut", 4))
    async with (
        line(broker_settings.port) as wire,
        echo(store, "cut.echo") as worker,
        opened(broker_settings, "a") as one,
        opened(msgspec.structs.replace(broker_settings, url=wire.url), "b") as other,
    ):
        await share(one, other)
        run_ids = await run_operations.start_all(store, definition, digest, [Raw(b"1")] * 200)
        await until_true(lambda: worker.seen.total() > 100)
        wire.cut()
        run_ids += await run_operations.start_all(store, definition, digest, [Raw(b"1")] * 100)
        runs = [await ended(store, run_id) for run_id in run_ids]
        assert ALL == one.partitions
        assert not other.lease.good
        wire.mend()
        await other.lease.over.wait()
        await other.store.broker.flush()
        assert runs == [(await load(store, run_id)).run for run_id in run_ids]
    assert {RunStatus.COMPLETED} == {run.status for run in runs}
    assert {1} == {step.attempts for run in runs for step in run.steps.values()}


async def test_a_shard_that_was_taken_for_dead_notices_and_changes_nothing_more(
    store: Store, broker_settings: BrokerSettings
) -> None:
    async def only_start(worker: Echo, task: TaskPayload) -> None:
        await worker.started(task)

    me = new_member("a")
    async with opened(broker_settings, me) as shard, echo(store, "dead.echo", only_start) as worker:
        run_id = await start(store, chain("dead", 2))
        await until_true(lambda: worker.seen.total() == 1)
        listed = await until(lambda: store.owners.find(me.id))
        assert listed is not None
        while not shard.lease.over.is_set():
            try:
                await store.owners.remove(me.id, listed.revision)
                break
            except Conflict:  # it has just renewed
                listed = await until(lambda: store.owners.find(me.id))
                assert listed is not None
        await shard.lease.over.wait()
        before = await store.runs.get(run_id)
        await store.history.append(StepCompleted(run_id=run_id, step_id="s0", attempt_number=1))
        with pytest.raises(LeaseLost):
            await shard.tick()
        assert 1 == worker.seen.total()
        assert await store.runs.get(run_id) == before
        async with opened(broker_settings, "a"):
            await until_true(
                lambda: worker.seen.total() == 2
            )  # now the second step is dispatched, for there is an owner


async def test_a_drained_engine_owns_nothing_and_takes_nothing_more(
    store: Store, broker_settings: BrokerSettings
) -> None:
    here, there = (replace(new_member(name, engine=name), host=name) for name in ("a", "b"))
    async with opened(broker_settings, here) as one:
        with pytest.raises(Conflict, match="no other engine can take over the partitions of a"):
            await drain(store.owners, "a", 10)
        async with opened(broker_settings, there) as other:
            await share(one, other)
            with pytest.raises(NotFound, match="no engine runs on c: there are engines on a, b"):
                await drain(store.owners, "c", 10)
            done = await drain(store.owners, "a", 20)
            assert ("a", 1, PARTITIONS // 2) == (done.host, done.shards, done.partitions)
            assert () == one.partitions
            await share(other)
            async with opened(broker_settings, replace(new_member("a2", engine="a"), host="a")) as restarted:
                assert () == restarted.partitions
        assert () == one.partitions
    async with opened(broker_settings, replace(new_member("a", engine="later"), host="a")) as again:
        assert ALL == again.partitions


async def test_the_consumer_of_a_former_owner_is_gone_and_with_it_its_requests_and_acknowledgements(
    store: Store, broker_settings: BrokerSettings
) -> None:
    async with opened(broker_settings, "a"):
        before = (await store.owners.read()).claims
        async with (
            open_store(broker_settings, "stranger") as own,
            open_shard(own, new_member("a")),
        ):  # it takes the place, unasked
            after = (await store.owners.read()).claims
            listed = await store.broker.api(f"CONSUMER.NAMES.{names.HISTORY}", {"offset": 0})
    assert {claimed.claim.consumer for claimed in after.values()} == set(listed["consumers"])
    assert not {claimed.claim.consumer for claimed in before.values()} & set(listed["consumers"])


async def test_the_consumer_of_a_former_owner_is_removed_later_if_the_broker_did_not_answer_at_first(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, kind = names.engine_consumer(0), type(store.consumers)
    former_ones, refused = kind.former, asyncio.Event()
    made, answers = asyncio.Event(), asyncio.Event()

    async def at_last(self: Any, current: Mapping[int, str]) -> list[str]:
        if made.is_set() and not answers.is_set():
            refused.set()
            raise Unavailable("no answer")
        return await former_ones(self, current) if answers.is_set() else []

    async def is_gone() -> bool:
        return await store.consumers.floor(former) is None

    monkeypatch.setattr(kind, "former", at_last)
    async with opened(broker_settings, "a") as one:
        async with opened(broker_settings, "b") as other:
            await share(one, other)
            await store.consumers.open(former, 0, 1)
            made.set()
        await refused.wait()
        answers.set()
        await until(is_gone)


async def test_without_its_consumer_a_partition_goes_on_where_its_former_owner_noted(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.actors.runs.shard.ACK_HELD_BACK_S", 0.1)
    log = (await store.history.tip()).created
    async with opened(broker_settings, "a") as shard, echo(store, "noted.echo"):
        run = await ended(store, await start(store, chain("noted", 1)))
        partition = names.partition(run.run_id)
        await until_true(lambda: shard.handled_before[partition] > run.seq)

        async def is_noted() -> bool:
            return (await store.owners.read()).handled_before(partition, log) > run.seq

        await until(is_noted)
        former = (await store.owners.read()).claims[partition].claim
        assert former.start <= run.seq
        shard.lease.end()  # it hands nothing over
    await store.broker.remove(f"CONSUMER.DELETE.{names.HISTORY}.{former.consumer}")  # as with the broker's memory
    async with opened(broker_settings, "b") as other:
        await until_true(lambda: partition in other.partitions)
        claim = (await store.owners.read()).claims[partition].claim
    assert claim.start > run.seq
    assert claim.consumer != former.consumer


async def test_what_a_dead_owner_had_not_handled_is_handled_though_a_later_event_was_removed(
    store: Store, broker_settings: BrokerSettings
) -> None:
    """The broker takes the removal of an event for an acknowledgement, and so for that of all events before it."""
    async with opened(broker_settings, "a") as shard:
        run_id = await start(store, {**chain("unhandled", 1), "timeout": "1s500ms"})
        partition = names.partition(run_id)
        await until(lambda: store.reader.one(names.TASKS, names.task_subject("unhandled.echo", run_id)))
        other = next(one for one in iter(new_run_id, None) if names.partition(one) == partition)
        late = await store.history.append(StepCompleted(run_id=other, step_id="s0", attempt_number=1))
        consumer = (await store.owners.read()).claims[partition].claim.consumer
        await until(lambda: is_delivered(store, consumer, late))
        await store.history.erase(late)
        await until(lambda: is_acknowledged(store, consumer, late))
        assert 1 == shard.timers.in_memory
        shard.lease.end()  # it dies
    async with opened(broker_settings, "b"):
        run = await ended(store, run_id)
    assert "workflow timeout exceeded (1s500ms)" == run.error


async def is_delivered(store: Store, consumer: str, seq: int) -> bool:
    found = await store.consumers.progress(consumer)
    return found is not None and found.delivered >= seq


async def test_a_timer_that_a_later_owner_has_set_is_neither_replaced_nor_withdrawn(store: Store) -> None:
    run_id = new_run_id()
    subject = names.schedule_subject(run_id, "late")
    lease, renewed = ShardLease(), ShardLease()
    renewed.renewed(now())
    timers = Timers(store, renewed, BrokerClock())
    timers.learn(names.partition(run_id), await store.history.last_seq())
    headers = {SCHEDULE: "@at 2126-01-01T00:00:00Z", SCHEDULE_TARGET: names.history_subject(run_id)}
    await store.publisher.send(subject, b"theirs", headers)
    await timers.withdraw(run_id, "late")
    theirs = await store.reader.one(names.HISTORY, subject)
    assert theirs is not None
    assert b"theirs" == theirs.data
    stale = Timers(store, lease, BrokerClock())
    stale.arm(run_id, SetTimer("late", now() + 3600), now())
    with pytest.raises(LeaseLost):
        await stale.settle(names.partition(run_id))
    with pytest.raises(LeaseLost):
        await stale.withdraw(run_id, "other")
    assert theirs == await store.reader.one(names.HISTORY, subject)


async def test_a_timer_that_stands_still_on_its_way_does_not_replace_a_later_owners(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = new_run_id()
    subject, partition = names.schedule_subject(run_id, "slow"), names.partition(run_id)
    headers = {SCHEDULE: "@at 2126-01-01T00:00:00Z", SCHEDULE_TARGET: names.history_subject(run_id)}
    lease = ShardLease()
    lease.renewed(now())

    def late(subject: str, data: bytes, given: dict[str, str]) -> asyncio.Future[bytes]:
        """Before it arrives, the lease is over and another has taken the run over."""
        lease.end()
        send(subject, b"theirs", headers)
        return send(subject, data, given)

    timers = Timers(store, lease, BrokerClock())
    timers.arm(run_id, SetTimer("slow", now() + 3600), now())
    send = store.publisher.send
    monkeypatch.setattr(store.publisher, "send", late)
    with pytest.raises(LeaseLost):
        await timers.settle(partition)
    found = await store.reader.one(names.HISTORY, subject)
    assert found is not None
    assert b"theirs" == found.data


async def test_tasks_that_a_later_owner_has_queued_are_not_withdrawn(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = new_run_id()
    subject = names.task_subject("spared.echo", run_id)
    await store.publisher.send(subject, b"ours")

    def lost() -> None:
        raise LeaseLost("the lease is over")

    async def late(verb: str, *request: Any) -> dict[str, Any]:
        """The removal stands still on its way, for as long as it takes others to become owners."""
        await store.publisher.send(subject, b"theirs")
        return await api(verb, *request)

    with pytest.raises(LeaseLost):
        await store.tasks.withdraw(run_id, "spared.echo", None, None, lost)
    assert 1 == len(await store.reader.subject(names.TASKS, subject))
    api = store.broker.api
    monkeypatch.setattr(store.broker, "api", late)
    await store.tasks.withdraw(run_id, "spared.echo", None, None, lambda: None)
    assert [b"theirs"] == [one.data for one in await store.reader.subject(names.TASKS, subject)]


def test_a_place_is_free_when_its_process_is_gone(tmp_path: Path) -> None:
    with occupied(str(tmp_path)) as first, occupied(str(tmp_path)) as second:
        assert first != second
        assert frozenset() == free_places(str(tmp_path))
    assert {first, second} == free_places(str(tmp_path))
    with occupied(str(tmp_path)) as again:
        assert first == again
        assert {second} == free_places(str(tmp_path))


def test_without_a_writable_directory_a_place_proves_nothing_about_a_former_process(tmp_path: Path) -> None:
    (tmp_path / "places").write_text("no directory")
    with occupied(str(tmp_path)) as first, occupied(str(tmp_path)) as second:
        assert first != second
    assert frozenset() == free_places(str(tmp_path))


def test_a_lease_is_good_for_its_time_from_when_the_sign_of_life_was_sent() -> None:
    lease = ShardLease()
    assert not lease.good
    lease.renewed(now() - LEASE_S + 10)
    assert lease.good
    lease.renewed(now() - LEASE_S)
    assert not lease.good
    lease.end()
    lease.renewed(now())
    assert not lease.good  # what is over stays over


async def test_who_waits_for_a_good_lease_goes_on_when_it_is_renewed_and_never_once_it_is_over() -> None:
    lease = ShardLease()
    waits = [asyncio.create_task(lease.until_good()) for _ in range(3)]
    await asyncio.sleep(0)
    waits[0].cancel()
    lease.renewed(now() - LEASE_S)
    await asyncio.sleep(0)
    assert not waits[1].done()
    lease.renewed(now())
    await asyncio.wait_for(asyncio.gather(*waits[1:]), 10)
    lease.end()
    late = asyncio.create_task(lease.until_good())
    await asyncio.sleep(0)
    lease.renewed(now())
    assert {late} == (await asyncio.wait([late], timeout=0))[1]
    late.cancel()


async def test_a_shard_that_was_removed_while_its_renewals_found_no_room_ends_at_the_first_that_does(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal speaks for its own moment: between two of them others may have had room to remove it."""
    members = Membership(store.owners, new_member("no.room"), ShardLease(), frozenset)
    await members.join()
    [listed] = [one for one in (await store.owners.read()).members.values() if one.member.id == members.me.id]
    renew = store.owners.renew

    async def refused(member: Member, expect: int) -> int:
        raise Full("no room")

    monkeypatch.setattr(store.owners, "renew", refused)
    members.lease._until = now() + 0.1
    await members._try_to_renew()
    assert members.lease._until > now() + 1  # nobody else could renew either, at that moment
    await store.owners.remove(members.me.id, listed.revision)
    await members._try_to_renew()
    assert members.lease.good  # it cannot know, and cannot write
    monkeypatch.setattr(store.owners, "renew", renew)
    await members._try_to_renew()
    assert not members.lease.good
    assert members.lease.over.is_set()
