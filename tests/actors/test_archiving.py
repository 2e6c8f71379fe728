"""Archiving over a real broker: a run that ended long ago is one message, and everything works on it as before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from msgspec import Raw

from penstock.actors.control import bulk, rerunning, run_operations, step_operations
from penstock.actors.control.rerunning import RerunWish
from penstock.actors.control.watch import Watched
from penstock.actors.imports.reading import read, read_at, read_many
from penstock.actors.index.file import index_path
from penstock.actors.index.follower import follow
from penstock.actors.index.run_index import RunIndex
from penstock.actors.maintenance import archivable as choosing
from penstock.actors.maintenance import archiving
from penstock.actors.maintenance.archivable import Archivable, archivable
from penstock.actors.maintenance.archiving import Archiver, archive_runs
from penstock.actors.maintenance.pruning import prune
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.loading import load, load_many
from penstock.broker import names
from penstock.broker.archive import whole_histories
from penstock.broker.archive.archived_runs import decode_archived, is_archive_mark
from penstock.broker.nats.direct import Stored
from penstock.broker.nats.publisher import Publisher
from penstock.broker.nats.tail import Lost, ReadBatch, Tail
from penstock.broker.records import run_data
from penstock.broker.store import Store, open_store
from penstock.broker.streams.history import History
from penstock.broker.worker_messages import TaskPayload
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, NotFound, Unavailable
from penstock.engine.run.event_payloads import SignalRef
from penstock.engine.run.events import SignalReceived
from penstock.engine.run.state import RunStatus, to_snapshot
from tests.support.waiting import until, until_true
from tests.support.world import Echo, chain, echo, ended, register, start

FOLD = partial(load_many, by_index=False)


class World:
    """A store that finds archived runs in an index, and whoever archives."""

    def __init__(self, store: Store, path: Path) -> None:
        self.store, self.path = store, path
        self.index = RunIndex(path)
        self.archiver = Archiver(store, path)
        store.archive.places = self.index.archived
        store.archive.after_s = 1.0
        store.archive._used = True

    async def archive(self) -> int:
        """Archive every run that has ended, and wait until their shard has put them away."""
        await self.caught_up()
        before = await self.store.history.now() + 1
        done = await self.archiver.archive(before)
        await self.put_away()
        return done

    async def put_away(self) -> None:
        """Return when no history ends with a mark, and the index knows it."""
        await until(self._is_put_away)
        await self.caught_up()

    async def caught_up(self) -> None:
        assert await self.index.caught_up(await self.store.history.last_seq(), 20)
        tip = await self.store.archive.tip()
        await until(lambda: asyncio.to_thread(lambda: self.index.archived(())[1] >= tip))

    async def _is_put_away(self) -> bool:
        last = await self.store.history.last_of(await self.store.history.run_ids())
        return not any(one.data.startswith(b'{"type":"workflow.archived"') for one in last.values())


@pytest.fixture
async def world(store: Store, broker_settings: BrokerSettings, tmp_path: Path) -> AsyncIterator[World]:
    path = index_path(tmp_path)
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")):
        following = asyncio.create_task(follow(own, path, FOLD))
        made = World(store, path)
        own.archive.places, own.archive._used = made.index.archived, True
        yield made
        following.cancel()
        made.index.close()


async def completed(store: Store, name: str, runs: int = 1, steps: int = 3, value: bytes = b'{"n":1}') -> list[str]:
    definition, digest = await register(store, chain(name, steps))
    async with echo(store, f"{name}.echo"):
        run_ids = await run_operations.start_all(store, definition, digest, [Raw(value)] * runs)
        for run_id in run_ids:
            await ended(store, run_id)
    return run_ids


async def failed(store: Store, name: str) -> str:
    async def fail(worker: Echo, task: TaskPayload) -> None:
        if task.step_id == "s1":
            await worker.fail(task, "no", "non_retriable")
        else:
            await worker.complete(task)

    async with echo(store, f"{name}.echo", fail):
        run_id = await start(store, chain(name, 3), b'"in"')
        await ended(store, run_id)
    return run_id


async def events(store: Store, run_id: str) -> list[tuple[int, float, bytes]]:
    return [
        (one.seq, one.at, one.data)
        async for page in store.history.pages(run_id)
        for one in page
        if not is_archive_mark(one.data)
    ]


async def found(store: Store, run_ids: list[str]) -> list[Archivable]:
    """What can be archived of these runs."""
    return [run async for runs in archivable(store, run_ids, await store.history.now() + 1) for run in runs]


async def is_gone(store: Store, run_id: str) -> bool:
    return await store.history.last(run_id) is None and await store.runs.get(run_id) is None


async def test_an_archived_run_is_one_message_and_reads_as_before(store: Store, world: World) -> None:
    run_ids = await completed(store, "plain", 3)
    before = {run_id: (await read(store, run_id), await events(store, run_id)) for run_id in run_ids}
    await world.caught_up()
    listed = world.index.query().run_ids
    tip = await store.archive.tip()
    assert await world.archive() >= 3
    assert await store.archive.tip() >= tip + 3
    for run_id, (run, history) in before.items():
        assert await is_gone(store, run_id)
        assert to_snapshot(run) == to_snapshot(await read(store, run_id))
        assert history == await events(store, run_id)
        assert history[0][0] == await store.history.first_seq(run_id)
        middle = history[len(history) // 2][0]
        assert (await store.history.at(run_id, middle)) is not None
        assert (await read_at(store, run_id, middle)).status is RunStatus.RUNNING
    assert listed == world.index.query().run_ids
    assert {"completed": 3} == world.index.count("plain")
    assert run_ids == [run.run_id for run in await read_many(store, run_ids)]
    assert await world.archive() == 0


async def test_a_large_output_of_an_archived_run_is_read_back(store: Store, world: World) -> None:
    from penstock.actors.runs.outputs import output_of

    value = b'"%b"' % (b"x" * 100_000)
    (run_id,) = await completed(store, "large", value=value)
    await world.archive()
    assert await is_gone(store, run_id)
    assert value == bytes(await output_of(store, await read(store, run_id), "s2"))


async def test_a_new_index_has_archived_runs_from_the_archive_alone(
    store: Store, world: World, broker_settings: BrokerSettings, tmp_path: Path
) -> None:
    run_ids = [*await completed(store, "anew", 2), await failed(store, "anew-failed")]
    await world.archive()
    path = index_path(tmp_path / "other")
    async with open_store(broker_settings, "other") as own:
        following = asyncio.create_task(follow(own, path, FOLD))
        with closing(RunIndex(path)) as index:
            await index.there(20)
            assert await index.caught_up(await store.history.last_seq(), 20)
            assert {"completed": 2} == index.count("anew")
            assert {"failed": 1} == index.count("anew-failed")
            assert world.index.query(limit=500).run_ids == index.query(limit=500).run_ids
            assert world.index.archived(run_ids)[0] == index.archived(run_ids)[0]
        following.cancel()


async def test_a_run_is_not_said_to_be_missing_while_the_index_does_not_know(store: Store, world: World) -> None:
    (run_id,) = await completed(store, "unknown")
    await world.archive()
    store.archive.places = lambda _: ({}, 0)
    with pytest.raises(Unavailable, match="the run index has read 0 of"):
        await read(store, run_id)
    store.archive.places = world.index.archived
    with pytest.raises(NotFound):
        await read(store, "0" * 32)


async def test_a_replay_brings_an_archived_run_back_and_it_is_archived_again(store: Store, world: World) -> None:
    run_id = await failed(store, "again")
    before = await events(store, run_id)
    await world.archive()
    assert await is_gone(store, run_id)
    first = world.index.archived([run_id])[0][run_id]
    await run_operations.replay(store, run_id)
    async with echo(store, "again.echo"):
        run = await ended(store, run_id)
    assert run.status is RunStatus.COMPLETED
    assert before == (await events(store, run_id))[: len(before)]
    await world.caught_up()
    assert {"completed": 1} == world.index.count("again")
    after = await events(store, run_id)
    assert await world.archive() == 1
    assert await is_gone(store, run_id)
    assert after == await events(store, run_id)
    assert await store.archive.body(first) is None
    assert first in world.index.superseded()
    await world.archiver.remove_superseded()
    assert first not in world.index.superseded()
    assert (await read(store, run_id)).status is RunStatus.COMPLETED


async def test_an_index_that_is_behind_never_shows_an_older_state(store: Store, world: World) -> None:
    run_id = await failed(store, "older")
    await world.archive()
    then, _ = world.index.archived([run_id])
    await run_operations.replay(store, run_id)
    async with echo(store, "older.echo"):
        await ended(store, run_id)
    await world.archive()
    store.archive.places = lambda _: (then, 0)
    with pytest.raises(Unavailable):
        await read(store, run_id)
    store.archive.places = world.index.archived
    assert RunStatus.COMPLETED is (await read(store, run_id)).status


async def test_a_run_that_is_removed_while_it_is_archived_does_not_come_back(store: Store, world: World) -> None:
    (run_id,) = await completed(store, "meant")
    (run,) = await found(store, [run_id])
    await world.caught_up()
    await until(lambda: _has_written_its_end(store, run_id))
    assert [run_id] == (await prune(store, world.index, [run_id])).pruned
    assert await archive_runs(store, [run]) == []
    seq = await store.archive.tip()
    await world.archive()
    await world.archiver.remove_superseded()
    assert await store.archive.body(seq) is None
    assert not world.index.archived([run_id])[0]
    assert run_id not in world.index.query(limit=500).run_ids


async def test_a_run_that_was_brought_back_needs_no_index_and_no_snapshot(store: Store, world: World) -> None:
    run_id = await failed(store, "lead")
    await world.archive()
    await run_operations.replay(store, run_id)
    store.archive.places = lambda _: ({}, 0)
    await store.runs.purge(run_id)
    run = (await load(store, run_id, by_index=False)).run
    assert run is not None
    assert not run.ended
    assert "completed" == run.steps["s0"].status
    assert run.resumes == 1


async def test_steps_of_an_archived_run_are_retried_and_skipped(store: Store, world: World) -> None:
    retried, skipped = await failed(store, "retried"), await failed(store, "skipped")
    await world.archive()
    assert (await step_operations.retry_step(store, retried, "s1")).resumed
    assert "completed" == await step_operations.skip_step(store, skipped, "s1", Raw(b'"by hand"'))
    async with echo(store, "retried.echo"), echo(store, "skipped.echo"):
        assert RunStatus.COMPLETED is (await ended(store, retried)).status
        assert RunStatus.COMPLETED is (await ended(store, skipped)).status


async def test_bulk_replay_and_reruns_take_archived_runs(store: Store, world: World) -> None:
    run_id = await failed(store, "bulk")
    await world.archive()
    assert [run_id] == [one.original_run_id for one in (await bulk.replay(store, [run_id], dry_run=True)).retried]
    assert await is_gone(store, run_id)
    wish = RerunWish(from_step="s1")
    new = await rerunning.rerun(store, run_id, wish)
    async with echo(store, "bulk.echo"):
        run = await ended(store, new.run_id)
    assert RunStatus.COMPLETED is run.status
    assert b'"in"' == bytes(run.steps["s0"].output or b"")
    assert [run_id] == [one.original_run_id for one in (await bulk.replay(store, [run_id], dry_run=False)).retried]


async def test_what_cannot_be_done_to_an_ended_run_cannot_be_done_to_an_archived_one(
    store: Store, world: World
) -> None:
    (run_id,) = await completed(store, "ended")
    await world.archive()
    with pytest.raises(Conflict, match="completed already"):
        await run_operations.cancel(store, run_id)
    with pytest.raises(Conflict, match="only a failed one"):
        await run_operations.replay(store, run_id)
    assert await is_gone(store, run_id)


async def test_a_key_still_belongs_to_the_archived_run(store: Store, world: World) -> None:
    definition, digest = await register(store, chain("keyed", 1))
    async with echo(store, "keyed.echo"):
        first = await run_operations.begin(store, definition, digest, Raw(b"1"), "key")
        many = await run_operations.begin_all(store, definition, digest, [Raw(b"1")] * 3, "keys")
        for run_id in (first.run_id, *many.run_ids):
            await ended(store, run_id)
    await world.archive()
    again = await run_operations.begin(store, definition, digest, Raw(b"1"), "key")
    assert (first.run_id, first.seq, False) == (again.run_id, again.seq, again.is_new)
    assert many.run_ids == (await run_operations.begin_all(store, definition, digest, [Raw(b"1")] * 3, "keys")).run_ids
    assert await is_gone(store, first.run_id)


async def test_a_watcher_of_an_archived_run_sees_all_its_events(store: Store, world: World) -> None:
    (run_id,) = await completed(store, "watched")
    before = await events(store, run_id)
    await world.archive()
    watched = Watched(store, run_id)
    seen = [one async for one in watched.events() if one is not None]
    assert [seq for seq, _, _ in before] == [one.seq for one in seen]
    await Watched(store, run_id).end()
    with pytest.raises(NotFound):
        await Watched(store, "1" * 32).end()


async def test_a_late_event_changes_nothing_of_an_archived_run(store: Store, world: World) -> None:
    (run_id,) = await completed(store, "late")
    await world.archive()
    before, letters = await read(store, run_id), await store.dead_letters.last_seq()
    event = SignalReceived(run_id=run_id, timestamp=run_operations.now(), payload=SignalRef(name="x", size=1))
    seq = await store.history.append(event)
    (other,) = await completed(store, "later")  # its partition or another: the shard has gone on
    assert before.status is (await read(store, run_id)).status
    assert seq == (await events(store, run_id))[-1][0]
    assert [run_id] == [run.run_id for run in await read_many(store, [run_id])]
    assert letters == await store.dead_letters.last_seq()
    assert await store.runs.get(run_id) is None
    assert (await prune(store, world.index, [run_id])).pruned == [run_id]
    assert other != run_id


async def test_a_removed_run_goes_from_the_archive(store: Store, world: World) -> None:
    run_ids = await completed(store, "pruned", 2)
    back = await failed(store, "pruned-back")
    await world.archive()
    places = world.index.archived([*run_ids, back])[0]
    await run_operations.replay(store, back)
    async with echo(store, "pruned-back.echo"):
        await ended(store, back)
    await until(lambda: _has_written_its_end(store, back))
    await world.caught_up()
    done = await prune(store, world.index, [*run_ids, back])
    assert {*run_ids, back} == {*done.pruned}
    for run_id in (*run_ids, back):
        await until(lambda run_id=run_id: _is_removed(store, places[run_id]))
        with pytest.raises(NotFound):
            await read(store, run_id)
    await world.caught_up()
    await until(lambda: asyncio.to_thread(lambda: not world.index.archived([*run_ids, back])[0]))
    assert not {*run_ids, back} & {*world.index.query(limit=500).run_ids}


async def _has_written_its_end(store: Store, run_id: str) -> bool:
    entry, last = await store.runs.get(run_id), await store.history.last(run_id)
    is_written = entry is not None and b'"status":"completed"' in entry.value
    return is_written or (last is not None and names.owner_state(last.headers) is not None)


async def _is_removed(store: Store, seq: int) -> bool:
    return await store.archive.body(seq) is None


async def test_what_was_stored_and_not_marked_is_finished_by_the_next_round(store: Store, world: World) -> None:
    (run_id,) = await completed(store, "halfway")
    (run,) = await found(store, [run_id])
    seq = await store.archive.put(run.body)  # and whoever did it dies
    await world.caught_up()
    assert not await is_gone(store, run_id)
    assert RunStatus.COMPLETED is (await read(store, run_id)).status
    await world.archive()
    assert await is_gone(store, run_id)
    assert seq == world.index.archived([run_id])[0][run_id]
    assert seq not in world.index.superseded()


async def test_what_was_stored_when_the_broker_went_away_is_finished_by_the_next_round(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(history: History, *of: object) -> int:
        raise Unavailable("away")

    await world.archive()
    (run_id,) = await completed(store, "away")
    with monkeypatch.context() as patch:
        patch.setattr(History, "mark", away)
        with pytest.raises(Unavailable):
            await world.archive()
    await world.caught_up()
    assert {run_id} == world.index.archived([run_id])[0].keys()
    assert not await is_gone(store, run_id)
    await world.archive()
    assert await is_gone(store, run_id)


async def test_what_does_not_arrive_of_the_histories_is_read_by_the_next_round(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(tail: Tail, most: int) -> ReadBatch:
        raise Lost("one delivery did not arrive")

    run_ids = await completed(store, "unread", 2)
    with monkeypatch.context() as patch:
        patch.setattr(Tail, "waiting", lost)
        with pytest.raises(Unavailable, match="the history was not read: one delivery did not arrive"):
            await found(store, run_ids)
    assert 2 == len(await found(store, run_ids))


async def test_of_two_that_archive_a_run_at_once_one_marks_it_and_nothing_is_lost(store: Store, world: World) -> None:
    run_ids = await completed(store, "twice", 5)
    before = {run_id: await events(store, run_id) for run_id in run_ids}
    runs = await found(store, run_ids)
    done = await asyncio.gather(archive_runs(store, runs), archive_runs(store, runs))
    assert sum(map(len, done)) == 5
    await world.put_away()
    await world.archiver.remove_superseded()
    for run_id, history in before.items():
        assert await is_gone(store, run_id)
        assert history == await events(store, run_id)


async def test_a_run_that_is_replayed_while_it_is_archived_goes_on(store: Store, world: World) -> None:
    run_id = await failed(store, "raced")
    (run,) = await found(store, [run_id])
    await run_operations.replay(store, run_id)
    assert await archive_runs(store, [run]) == []
    async with echo(store, "raced.echo"):
        assert RunStatus.COMPLETED is (await ended(store, run_id)).status
    await until(lambda: _has_written_its_end(store, run_id))
    whole = await events(store, run_id)
    assert await world.archive() >= 1
    assert await is_gone(store, run_id)
    assert whole == await events(store, run_id)


async def test_a_replay_of_a_run_that_is_archived_meanwhile_finds_out(store: Store, world: World) -> None:
    run_id = await failed(store, "overtaken")
    loaded = await load(store, run_id)
    event = await run_operations.resumption(store, run_id, loaded)
    await world.archive()
    with pytest.raises(Conflict, match="just changed"):
        await run_operations.resume(store, loaded, event)
    assert RunStatus.FAILED is (await read(store, run_id)).status
    await run_operations.replay(store, run_id)
    async with echo(store, "overtaken.echo"):
        assert RunStatus.COMPLETED is (await ended(store, run_id)).status


async def test_a_history_that_goes_while_it_is_read_is_read_on_in_the_archive(
    store: Store, world: World, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run_id,) = await completed(store, "meanwhile", steps=5)
    whole = await events(store, run_id)
    pages = store.reader.pages

    async def cut(*args: object, **more: object) -> AsyncIterator[list[Stored]]:
        async for page in pages(*args, **more):  # type: ignore[arg-type]
            await world.archive()
            yield page[:3]

    async with open_store(broker_settings, "reader") as reading:
        reading.archive.places, reading.archive._used = world.index.archived, True
        monkeypatch.setattr(reading.reader, "pages", cut)
        monkeypatch.setattr(whole_histories, "YOUNG_S", 0.0)
        assert whole == await events(reading, run_id)
        assert await is_gone(store, run_id)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands far apart in a stream of many runs does so in a small one."""
    monkeypatch.setattr(run_data, "APART", 0)


async def test_a_reader_finds_all_of_a_run_whenever_its_history_is_removed_message_by_message(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, apart: None
) -> None:
    (run_id,) = await completed(store, "by-message", steps=5)
    before = await events(store, run_id), to_snapshot(await read(store, run_id))
    left, found = list[list[int]](), list[object]()
    erase = Publisher.erase

    async def erase_and_read(publisher: Publisher, stream: str, seq: int) -> None:
        await erase(publisher, stream, seq)
        if stream == names.HISTORY:
            left.append([one.seq for one in await store.history.read(run_id)])
            watched = [one.seq async for one in Watched(store, run_id).events() if one is not None]
            found.append((await events(store, run_id), to_snapshot(await read(store, run_id))))
            assert watched[: len(before[0])] == [seq for seq, _, _ in before[0]]

    monkeypatch.setattr(Publisher, "erase", erase_and_read)
    assert await world.archive() == 1
    await until_true(lambda: [] in left and len(found) == len(left))  # who archives waits for its shard only so long
    others, mark = [seq for seq, _, _ in before[0]][1:], left[0][-1]
    assert [[*others[:count], mark] for count in range(len(others), -1, -1)] + [[]] == left
    assert [before] * len(left) == found


async def test_a_history_goes_by_its_subject_where_that_costs_less(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, apart: None
) -> None:
    """One of many events, of large ones, and one that was archived before."""
    monkeypatch.setattr(choosing, "NAMED_MAX", 8)
    long, large, small = (
        *await completed(store, "long", steps=7),
        *await completed(store, "large", value=b'"%b"' % (b"x" * 40_000)),
        await failed(store, "small"),
    )
    named = {run.run_id: run.events for run in await found(store, [long, large, small])}
    assert {long: (), large: (), small: tuple(seq for seq, _, _ in await events(store, small))} == named
    await world.archive()
    await run_operations.replay(store, small)
    async with echo(store, "small.echo"):
        await ended(store, small)
    assert () == (await found(store, [small]))[0].events
    await world.archive()
    for run_id in (long, large, small):
        assert await is_gone(store, run_id)
        assert RunStatus.COMPLETED is (await read(store, run_id)).status


@pytest.mark.parametrize(("apart", "one_by_one"), [(256, False), (1, True)])
async def test_a_history_goes_one_by_one_where_its_mark_is_far_away(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, apart: int, one_by_one: bool
) -> None:
    erase, erased = Publisher.erase, list[int]()

    async def erase_and_note(publisher: Publisher, stream: str, seq: int) -> None:
        erased.append(seq)
        await erase(publisher, stream, seq)

    monkeypatch.setattr(run_data, "APART", apart)
    monkeypatch.setattr(Publisher, "erase", erase_and_note)
    (run_id,) = await completed(store, f"far-{one_by_one}")
    first, *others = [seq for seq, _, _ in await events(store, run_id)]
    assert await world.archive() == 1
    assert ([first, *reversed(others)] if one_by_one else []) == erased[: len(others) + 1]
    assert await is_gone(store, run_id)


async def test_a_mark_that_names_events_of_another_run_removes_none_of_them(
    store: Store, world: World, apart: None
) -> None:
    """Whoever may write to histories, as workers do, could have any run removed else."""
    run_id, other = await completed(store, "forged", 2)
    theirs = await events(store, other)
    (run,) = await found(store, [run_id])
    forged = run._replace(events=tuple(seq for seq, _, _ in theirs))
    assert await archive_runs(store, [forged]) == [run_id]
    await world.put_away()
    assert await is_gone(store, run_id)
    assert theirs == [(one.seq, one.at, one.data) for one in await store.history.read(other)]
    assert await world.archive() == 1
    assert theirs == await events(store, other)


async def test_an_owner_that_dies_while_it_removes_a_history_is_followed_by_one_that_goes_on(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, apart: None
) -> None:
    (run_id,) = await completed(store, "taken-on")
    before = await events(store, run_id)
    erase, erased = Publisher.erase, list[int]()

    async def erase_until_away(publisher: Publisher, stream: str, seq: int) -> None:
        erased.append(seq)
        if len(erased) == 3:
            raise Unavailable("away")
        await erase(publisher, stream, seq)

    monkeypatch.setattr(Publisher, "erase", erase_until_away)
    assert await world.archive() == 1
    assert await is_gone(store, run_id)
    assert erased[:3] == erased[3:6]
    assert before == await events(store, run_id)


async def test_runs_are_archived_in_the_order_of_their_ends(store: Store, world: World) -> None:
    first, second = await start(store, chain("ordered", 1)), await start(store, chain("ordered-first", 1))
    for name, run_id in (("ordered-first", second), ("ordered", first)):
        async with echo(store, f"{name}.echo"):
            await ended(store, run_id)
    await world.archive()
    places = world.index.archived([first, second])[0]
    assert places[second] < places[first]


async def test_a_run_that_took_long_is_archived_with_short_ones(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "SHORT_US", 0)
    parked = await start(store, chain("slow", 1))
    run_ids = await completed(store, "quick", 3)
    async with echo(store, "slow.echo"):
        await ended(store, parked)
    assert await world.archive() >= 4
    for run_id in (parked, *run_ids):
        assert await is_gone(store, run_id)
        assert RunStatus.COMPLETED is (await read(store, run_id)).status


async def test_a_scheduled_run_is_archived_with_its_first_event(store: Store, world: World) -> None:
    """Also when it is read with others, one of whom began before it had started."""
    definition, digest = await register(store, chain("timed", 1))
    run_at = datetime.now(UTC) + timedelta(seconds=1)
    timed = (await run_operations.schedule(store, definition, digest, Raw(b"1"), run_at)).run_id
    (between,) = await completed(store, "between")
    async with echo(store, "timed.echo"):
        await ended(store, timed)
    before = await events(store, timed)
    assert 5 == len(before)
    archived = {run.run_id: run for run in await found(store, [between, timed])}
    assert [seq for seq, _, _ in before] == [one.seq for one in decode_archived(archived[timed].body, 1).events]


async def test_young_and_running_runs_stay_where_they_are(store: Store, world: World) -> None:
    (young,) = await completed(store, "young")
    parked = await start(store, chain("parked", 1))
    await world.caught_up()
    await world.archiver.archive(await store.history.now() - 3600)
    assert not await found(store, [parked])
    assert not await is_gone(store, young)
    assert await store.history.last(parked) is not None


async def test_without_the_setting_nothing_is_archived_and_nobody_asks(store: Store, world: World) -> None:
    store.archive._used = False
    store.archive._asked_at = time.monotonic()
    asked: list[Sequence[str]] = []
    store.archive.places = lambda run_ids: (asked.append(list(run_ids)) or {}, 0)  # type: ignore[func-returns-value]
    with pytest.raises(NotFound):
        await read(store, "2" * 32)
    assert not asked
