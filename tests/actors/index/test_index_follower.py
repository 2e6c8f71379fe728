"""The run index keeps up with the log, has one writer, and is built again when its file is not sound."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.actors.index import follower
from penstock.actors.index.file import IndexProgress, identity, prepare
from penstock.actors.index.follower import exclusively, follow, follow_when_free
from penstock.actors.index.rows import Change
from penstock.actors.index.run_index import RunIndex
from penstock.actors.runs.loading import load_many
from penstock.broker import names
from penstock.broker.nats import tail
from penstock.broker.nats.tail import Read, Tail
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.engine.errors import Conflict, Unavailable
from penstock.engine.run.events import (
    WorkflowCompleted,
    WorkflowStarted,
)
from tests.support.clocks import set_clock
from tests.support.own_broker import OwnBroker, own_broker
from tests.support.run_index import (
    SECONDS,
    IndexFileAt,
    append,
    running,
    schedule,
    seen,
    shown,
    start_many,
    started,
    until,
)

HOLDER = """
import sys, time
from pathlib import Path
from penstock.actors.index.follower import exclusively
with exclusively(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def restartable(tmp_path: Path) -> Iterator[OwnBroker]:
    with own_broker(tmp_path / "broker") as broker:
        yield broker


class TestKeepingUp:
    async def test_a_reader_that_waited_sees_what_was_written(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        for number in range(20):
            await index.caught_up(await append(store, started(f"{workflow}-{number}", workflow)), SECONDS)
            assert {"running": number + 1} == index.count(workflow)

    async def test_trailing_timers_are_passed(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        await append(store, started(workflow, workflow))
        await schedule(store, workflow)
        await seen(index, store)
        assert [workflow] == index.query(workflow).run_ids

    async def test_removed_messages_at_the_end_are_passed(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        await append(store, started(workflow, workflow))
        subject = await schedule(store, workflow)
        await store.broker.api(f"STREAM.PURGE.{names.HISTORY}", {"filter": subject})
        await seen(index, store)
        assert [workflow] == index.query(workflow).run_ids

    async def test_waiting_ends_after_its_time(self, store: Store, index: RunIndex, followed: None) -> None:
        await seen(index, store)
        last = await store.history.last_seq()
        assert not await index.caught_up(last + 7, 0.05)
        assert last == index.progress().seq

    async def test_a_reader_may_be_there_before_the_file(
        self, store: Store, index: RunIndex, path: Path, workflow: str
    ) -> None:
        await append(store, started(workflow, workflow))
        assert not index.alive()
        with pytest.raises(Unavailable, match="not there yet"):
            index.query()
        async with running(seen(index, store)) as waiting, running(follow(store, path, load_many)):
            await asyncio.wait_for(asyncio.shield(waiting), SECONDS)
            assert [workflow] == index.query(workflow).run_ids

    async def test_the_index_is_alive_as_long_as_somebody_follows(
        self, store: Store, index: RunIndex, path: Path
    ) -> None:
        async with running(follow(store, path, load_many)):
            await until(index.alive)
        with IndexFileAt(path) as file:
            file.write((), file.at._replace(beat=time.time() - 10))
        assert not index.alive()

    async def test_the_index_is_alive_although_the_clock_was_set_back(
        self, store: Store, index: RunIndex, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with running(follow(store, path, load_many)):
            await until(index.alive)
            set_clock(monkeypatch, -3600.0)
            await until(index.alive)

    async def test_a_batch_may_be_larger_than_one_fetch(
        self, store: Store, index: RunIndex, path: Path, workflow: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(follower, "BATCH", 10)
        await start_many(store, workflow, 50)
        async with running(follow(store, path, load_many)):
            await seen(index, store)
        assert {"running": 50} == index.count(workflow)

    async def test_a_new_follower_goes_on_where_the_last_one_ended(
        self, store: Store, index: RunIndex, path: Path, workflow: str
    ) -> None:
        async with running(follow(store, path, load_many)):
            await append(store, started(f"{workflow}-1", workflow))
            await seen(index, store)
        before = identity(path)
        await append(store, started(f"{workflow}-2", workflow), WorkflowCompleted(run_id=f"{workflow}-1"))
        async with running(follow(store, path, load_many)):
            await seen(index, store)
        assert {"running": 1, "completed": 1} == index.count(workflow)
        assert before == identity(path)


class TestLosses:
    async def test_a_delivery_that_is_lost_on_the_way_is_read_again(
        self, store: Store, index: RunIndex, path: Path, workflow: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await start_many(store, workflow, 50)
        lost = drop_one(monkeypatch)
        async with running(follow(store, path, load_many)):
            await seen(index, store)
        assert lost
        assert {"running": 50} == index.count(workflow)

    async def test_a_consumer_that_is_removed_amid_the_log_is_replaced(
        self, store: Store, index: RunIndex, path: Path, workflow: str, followed: None
    ) -> None:
        await start_many(store, workflow, 10)
        await seen(index, store)
        listed = await store.broker.api(f"CONSUMER.NAMES.{names.HISTORY}", {})
        for name in listed["consumers"]:
            await store.broker.remove(f"CONSUMER.DELETE.{names.HISTORY}.{name}")
        await append(store, *(started(f"{workflow}-{number}", workflow) for number in range(10)))
        await seen(index, store)
        assert {"running": 20} == index.count(workflow)


class TestOneFollower:
    async def test_a_second_follower_is_refused(self, store: Store, path: Path, followed: None) -> None:
        await until(lambda: bool(identity(path)))
        with pytest.raises(Conflict, match="another process keeps the run index"):
            await follow(store, path, load_many)

    async def test_a_follower_takes_over_when_the_holder_dies(
        self, store: Store, index: RunIndex, path: Path, workflow: str
    ) -> None:
        await append(store, started(workflow, workflow))
        with lock_holder(path) as holder:
            async with running(follow_when_free(store, path, load_many, retry_s=0.02)):
                assert not identity(path)
                holder.kill()
                await seen(index, store)
        assert [workflow] == index.query(workflow).run_ids

    def test_the_lock_is_free_after_its_block(self, path: Path) -> None:
        with exclusively(path), pytest.raises(Conflict), exclusively(path):
            raise AssertionError("held twice")
        with exclusively(path):
            pass

    def test_a_writer_that_lost_its_lock_unknowingly_is_stopped(self, path: Path) -> None:
        prepare(path, "stream")
        with IndexFileAt(path) as late, IndexFileAt(path) as now:
            now.write([Change("a", WorkflowStarted, 5, "w", 1)], IndexProgress(5))
            with pytest.raises(Conflict):
                late.write([Change("b", WorkflowStarted, 6, "w", 1)], IndexProgress(6))
        index = RunIndex(path)
        assert ["a"] == index.query().run_ids
        index.close()


class TestRebuilding:
    async def test_a_deleted_file_is_made_anew(
        self, store: Store, index: RunIndex, path: Path, followed: None, workflow: str
    ) -> None:
        await append(store, started(workflow, workflow))
        await seen(index, store)
        delete(path)
        await append(store, WorkflowCompleted(run_id=workflow))
        await seen(index, store)
        assert {"completed": 1} == index.count(workflow)

    @pytest.mark.parametrize("damage", [b"no database at all", bytes(8192), None])
    async def test_a_corrupted_file_is_made_anew(
        self, store: Store, index: RunIndex, path: Path, workflow: str, damage: bytes | None
    ) -> None:
        await append(store, started(workflow, workflow))
        async with running(follow(store, path, load_many)):
            await seen(index, store)
        index.close()
        spoil(path, damage)
        async with running(follow(store, path, load_many)):
            await append(store, WorkflowCompleted(run_id=workflow))  # nothing that is left of the old file knows of it
            await until(lambda: workflow in shown(index, "completed"))
        assert {"completed": 1} == index.count(workflow)

    async def test_the_log_left_behind_by_a_deleted_file_does_no_harm(
        self, store: Store, index: RunIndex, path: Path, workflow: str
    ) -> None:
        leave_log_behind(path)
        await append(store, started(workflow, workflow))
        async with running(follow(store, path, load_many)):
            await seen(index, store)
        assert [workflow] == index.query(workflow).run_ids

    async def test_a_file_of_another_version_is_made_anew(
        self, store: Store, index: RunIndex, path: Path, workflow: str
    ) -> None:
        tip = await store.history.tip()
        prepare(path, tip.created)
        with IndexFileAt(path) as file:
            file.write([Change(f"{workflow}-old", WorkflowStarted, tip.seq, workflow, 1)], IndexProgress(tip.seq))
            file._db.execute("PRAGMA user_version = 99")
        await append(store, started(workflow, workflow))
        async with running(follow(store, path, load_many)):
            await until(index.alive)
            await seen(index, store)
        assert [workflow] == index.query(workflow).run_ids

    async def test_another_log_makes_another_index(self, restartable: OwnBroker, index: RunIndex, path: Path) -> None:
        async with open_store(restartable.settings, "test") as store:
            await provision(store.broker, restartable.settings)
            async with running(follow(store, path, load_many)):
                await append(store, started("old", "w"), started("older", "w"))
                await seen(index, store)
                await store.broker.api(f"STREAM.DELETE.{names.HISTORY}")
                await provision(store.broker, restartable.settings)
                await append(store, started("new", "w"))
                await until(lambda: index.alive() and shown(index) == ["new"])

    async def test_a_log_that_lost_its_end_makes_another_index(
        self, store: Store, index: RunIndex, path: Path, workflow: str
    ) -> None:
        tip = await store.history.tip()
        prepare(path, tip.created)
        with IndexFileAt(path) as file:
            file.write(
                [Change(workflow, WorkflowStarted, tip.seq, workflow, 1)],
                IndexProgress(tip.seq + 1000, beat=time.time()),
            )
        async with running(follow(store, path, load_many)):
            await until(lambda: index.alive() and not index.count(workflow))

    async def test_it_survives_a_restart_of_the_broker(
        self, restartable: OwnBroker, index: RunIndex, path: Path
    ) -> None:
        async with open_store(restartable.settings, "test") as store:
            await provision(store.broker, restartable.settings)
            async with running(follow(store, path, load_many)):
                await append(store, started("a", "w"))
                await seen(index, store)
                before = identity(path)
                await asyncio.to_thread(restartable.restart)
                await until(lambda: store.broker.connected)
                await index.caught_up(await append(store, WorkflowCompleted(run_id="a"), started("b", "w")), SECONDS)
        assert {"completed": 1, "running": 1} == index.count("w")
        assert before == identity(path)


def drop_one(monkeypatch: pytest.MonkeyPatch) -> list[Read]:
    """Messages that a tail has not taken, one at most, in the middle of others."""
    dropped: list[Read] = []

    class Losing(Tail):
        def _take(self, read: bytes, at: int, number: bytes) -> int:
            behind = super()._take(read, at, number)
            if not dropped and len(self._kept) > 5:
                dropped.append(self._kept.pop(3))
                self._count -= 1
            return behind

    monkeypatch.setattr(tail, "Tail", Losing)
    return dropped


@contextmanager
def lock_holder(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock until it is killed."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout
        holder.stdout.readline()
        yield holder
        holder.kill()


def delete(path: Path) -> None:
    path.unlink()


def leave_log_behind(path: Path) -> None:
    path.parent.mkdir(parents=True)
    Path(f"{path}-wal").write_bytes(b"stale" * 1000)


def spoil(path: Path, damage: bytes | None) -> None:
    """Other contents, or (None) the second half overwritten."""
    body = path.read_bytes()
    path.write_bytes(damage or body[: len(body) // 2] + b"\xff" * (len(body) - len(body) // 2))
