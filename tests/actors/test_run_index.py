"""The run index over a real broker: what it shows, how it keeps up, and what it survives."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from uuid_utils import uuid7

from penstock.actors.index import follower
from penstock.actors.index.file import IndexFile, IndexProgress, identity, index_path, instant_us, prepare
from penstock.actors.index.follower import exclusively, follow, follow_when_free
from penstock.actors.index.rows import Change, Row, fold
from penstock.actors.index.run_index import RunIndex
from penstock.actors.runs.loading import load_many
from penstock.broker import names
from penstock.broker.nats.headers import SCHEDULE, SCHEDULE_TARGET
from penstock.broker.nats.publisher import ack_seq
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.engine.errors import Conflict, Invalid, Unavailable
from penstock.engine.run.events import (
    Event,
    Scheduled,
    Started,
    StepCompleted,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
)
from penstock.engine.run.state import RunStatus
from tests.support.clocks import set_clock
from tests.support.own_broker import OwnBroker, own_broker

SECONDS = 10.0
NOON = "2026-01-01T12:00:00Z"
HOLDER = """
import sys, time
from pathlib import Path
from penstock.actors.index.follower import exclusively
with exclusively(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(data_dir: Path) -> Path:
    return index_path(data_dir)


@pytest.fixture
def index(path: Path) -> Iterator[RunIndex]:
    opened = RunIndex(path)
    yield opened
    opened.close()


@pytest.fixture
async def followed(store: Store, path: Path) -> AsyncIterator[None]:
    async with running(follow(store, path, load_many)):
        yield


@pytest.fixture
def workflow() -> str:
    """A name of the test's own: the module's tests share one log."""
    return f"wf-{uuid7().hex}"


@pytest.fixture
def restartable(tmp_path: Path) -> Iterator[OwnBroker]:
    with own_broker(tmp_path / "broker") as broker:
        yield broker


@asynccontextmanager
async def running(coroutine: Awaitable[object]) -> AsyncIterator[asyncio.Task[None]]:
    """The coroutine as a task for the time of the block."""

    async def run() -> None:
        await coroutine

    task = asyncio.create_task(run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def started(run_id: str, workflow: str, timestamp: str = NOON) -> WorkflowStarted:
    return WorkflowStarted(
        run_id=run_id, timestamp=timestamp, payload=Started(workflow=workflow, version="1", digest="d")
    )


def scheduled(run_id: str, workflow: str, timestamp: str = NOON) -> WorkflowScheduled:
    payload = Scheduled(workflow=workflow, version="1", digest="d", run_at="2030-01-01T00:00:00Z")
    return WorkflowScheduled(run_id=run_id, timestamp=timestamp, payload=payload)


async def append(store: Store, *events: Event) -> int:
    """The sequence of the last of them."""
    seq = 0
    for event in events:
        seq = await store.history.append(event)
    return seq


async def start_many(store: Store, workflow: str, count: int) -> list[str]:
    """Runs begun a second apart, oldest first."""
    run_ids = [uuid7().hex for _ in range(count)]
    await append(store, *(started(run_id, workflow, f"2026-01-01T12:00:{n:02}Z") for n, run_id in enumerate(run_ids)))
    return run_ids


async def seen(index: RunIndex, store: Store) -> None:
    """The index has everything."""
    assert await index.caught_up(await store.history.last_seq(), SECONDS)


async def until(holds: Callable[[], bool]) -> None:
    """Polls: a file tells nobody that it changed."""
    async with asyncio.timeout(SECONDS):
        for _ in count():
            if holds():
                return
            await asyncio.sleep(0.005)


async def publish(store: Store, run_id: str, body: bytes) -> int:
    return ack_seq(await store.publisher.send(names.history_subject(run_id), body))


async def schedule(store: Store, run_id: str, at: str = "2099-01-01T00:00:00Z") -> str:
    """A timer of the broker's in the history stream; returns its subject."""
    subject = names.schedule_subject(run_id, "workflow")
    headers = {SCHEDULE: f"@at {at}", SCHEDULE_TARGET: names.history_subject(run_id)}
    await store.publisher.send(subject, b'{"type":"workflow.started"}', headers)
    return subject


class TestLists:
    async def test_runs_come_newest_first(self, store: Store, index: RunIndex, followed: None, workflow: str) -> None:
        run_ids = await start_many(store, workflow, 3)
        await seen(index, store)
        assert run_ids[::-1] == index.query(workflow).run_ids

    async def test_runs_of_one_instant_come_by_run_id(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        await append(store, *(started(f"{workflow}-{end}", workflow) for end in "bca"))
        await seen(index, store)
        assert [f"{workflow}-{end}" for end in "cba"] == index.query(workflow).run_ids

    async def test_the_instant_counts_not_its_text(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        late, early = uuid7().hex, uuid7().hex
        await append(
            store,
            started(late, workflow, "2026-01-01T11:30:00Z"),
            started(early, workflow, "2026-01-01T12:00:00+01:00"),
        )
        await seen(index, store)
        assert [late, early] == index.query(workflow).run_ids
        assert [late] == index.query(workflow, after="2026-01-01T12:30:00+01:00").run_ids

    async def test_a_run_without_a_timestamp_is_as_old_as_its_message(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        await append(store, started("".join(workflow.split("-")), workflow, ""))
        await seen(index, store)
        now = time.time()
        near = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + offset_s)) for offset_s in (-60, 60)]
        assert 1 == len(index.query(workflow, after=near[0], before=near[1]).run_ids)

    async def test_pages_together_are_the_whole_list(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        run_ids = await start_many(store, workflow, 7)
        await append(store, *(WorkflowCompleted(run_id=run_id) for run_id in run_ids[::2]))
        await seen(index, store)
        pages = list(paged(index, workflow, 3))
        assert run_ids[::-1] == [run_id for page in pages for run_id in page]
        assert [3, 3, 1] == [len(page) for page in pages]

    async def test_a_full_last_page_has_no_next(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        await start_many(store, workflow, 2)
        await seen(index, store)
        assert index.query(workflow, limit=2).next is None

    async def test_a_page_goes_on_where_it_ended_though_newer_runs_came(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        run_ids = await start_many(store, workflow, 4)
        await seen(index, store)
        first = index.query(workflow, limit=2)
        await append(store, started(uuid7().hex, workflow, "2026-01-01T13:00:00Z"))
        await seen(index, store)
        assert run_ids[1::-1] == index.query(workflow, limit=2, cursor=first.next).run_ids

    async def test_filters_narrow_by_workflow_status_and_age(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        run_ids = await start_many(store, workflow, 4)
        await append(store, WorkflowCompleted(run_id=run_ids[1]), WorkflowFailed(run_id=run_ids[2]))
        await seen(index, store)
        assert [run_ids[3], run_ids[0]] == index.query(workflow, frozenset({"running"})).run_ids
        assert [run_ids[2], run_ids[1]] == index.query(workflow, frozenset({"completed", "failed"})).run_ids
        assert [] == index.query("no-such-workflow").run_ids
        assert [] == index.query(workflow, frozenset()).run_ids
        within = index.query(workflow, after="2026-01-01T12:00:01Z", before="2026-01-01T12:00:02Z")
        assert [run_ids[2], run_ids[1]] == within.run_ids

    async def test_without_a_workflow_all_are_listed(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        await append(store, started(f"{workflow}-1", workflow), started(f"{workflow}-2", f"{workflow}-other"))
        await seen(index, store)
        assert {f"{workflow}-1", f"{workflow}-2"} <= set(index.query(limit=10_000).run_ids)

    async def test_count_returns_the_number_of_runs_in_each_status(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        run_ids = await start_many(store, workflow, 3)
        await seen(index, store)
        assert {"running": 3} == index.count(workflow)
        await append(store, WorkflowCompleted(run_id=run_ids[0]), WorkflowCancelled(run_id=run_ids[1]))
        await append(store, WorkflowCompleted(run_id=run_ids[2]))
        await seen(index, store)
        assert {"completed": 2, "cancelled": 1} == index.count(workflow)
        assert index.count()["completed"] >= 2

    @pytest.mark.parametrize("cursor", ["", "x", "1", "1.", ".a", "1e5.a", "--1.a", "9" * 19 + ".a"])
    def test_a_bad_cursor_is_invalid(self, index: RunIndex, cursor: str) -> None:
        with pytest.raises(Invalid, match="cursor"):
            index.query(cursor=cursor)

    @pytest.mark.parametrize("bound", ["", "yesterday", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z"])
    def test_a_bad_bound_is_invalid_and_named(self, index: RunIndex, bound: str) -> None:
        with pytest.raises(Invalid, match=r"after .* is not an RFC 3339 time"):
            index.query(after=bound)


class TestStatus:
    async def test_an_end_is_final(self, store: Store, index: RunIndex, followed: None, workflow: str) -> None:
        run_id = uuid7().hex
        await append(store, started(run_id, workflow), WorkflowCancelled(run_id=run_id))
        await append(
            store, WorkflowCompleted(run_id=run_id), WorkflowFailed(run_id=run_id), scheduled(run_id, workflow)
        )
        await publish(
            store,
            run_id,
            b'{"type":"workflow.started","run_id":"x","payload":{"workflow":"w","version":"1","digest":"d"}}',
        )
        await seen(index, store)
        assert {"cancelled": 1} == index.count(workflow)

    async def test_a_failed_run_that_is_resumed_runs_again(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        run_id = uuid7().hex
        await append(store, started(run_id, workflow), WorkflowFailed(run_id=run_id), WorkflowResumed(run_id=run_id))
        await seen(index, store)
        assert {"running": 1} == index.count(workflow)

    async def test_a_scheduled_run_keeps_its_age_when_it_starts(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        run_id = uuid7().hex
        await append(store, scheduled(run_id, workflow))
        await seen(index, store)
        assert {"scheduled": 1} == index.count(workflow)
        await append(store, started(run_id, workflow, "2026-01-02T12:00:00Z"))
        await seen(index, store)
        assert [run_id] == index.query(workflow, frozenset({"running"}), before=NOON).run_ids

    async def test_events_of_an_unknown_run_make_none(self, store: Store, index: RunIndex, followed: None) -> None:
        run_id = uuid7().hex
        await append(store, WorkflowCancelled(run_id=run_id), StepCompleted(run_id=run_id, step_id="a"))
        await seen(index, store)
        assert run_id not in index.query(limit=10_000).run_ids

    async def test_other_writers_may_order_and_space_their_keys_freely(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        run_id = uuid7().hex
        payload = b'{"digest": "d", "version": "1", "workflow": "%s"}' % workflow.encode()
        await publish(
            store, run_id, b'{ "run_id": "%s", "payload": %s, "type": "workflow.started" }' % (run_id.encode(), payload)
        )
        await publish(store, run_id, b'\n{"type" : "workflow\\u002ecompleted", "run_id": "%s"}' % run_id.encode())
        await seen(index, store)
        assert [run_id] == index.query(workflow, frozenset({"completed"})).run_ids

    async def test_what_nobody_can_read_changes_nothing_and_stops_nothing(
        self, store: Store, index: RunIndex, followed: None, workflow: str
    ) -> None:
        run_id = uuid7().hex
        await append(store, started(run_id, workflow))
        for body in (
            b"",
            b"{",
            b'{"type":"workflow.started"}',
            b'{"type":"workflow.unknown","run_id":"x"}',
            b"\xff\x00",
        ):
            await publish(store, run_id, body)
        await append(store, WorkflowCompleted(run_id=run_id))
        await seen(index, store)
        assert {"completed": 1} == index.count(workflow)

    def test_only_rows_that_change_are_written(self) -> None:
        changes = [
            Change("a", WorkflowCompleted, 1),
            Change("b", WorkflowStarted, 2, "w", 1),
            Change("b", WorkflowStarted, 3, "v", 2),
        ]
        assert [Row("b", "w", RunStatus.RUNNING, 1, status_seq=2, confirmed=2)] == list(fold({}, changes).values())

    @pytest.mark.parametrize(
        ("text", "expected"), [("1970-01-01T00:00:00.0000019Z", 2), ("1969-12-31T23:59:59Z", -1_000_000), ("", None)]
    )
    def test_instants_are_whole_microseconds(self, text: str, expected: int | None) -> None:
        assert expected == instant_us(text)


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


class IndexFileAt:
    """A writer of the test's own, closed at the end of the block."""

    def __init__(self, path: Path) -> None:
        self._file = IndexFile(path)

    def __enter__(self) -> IndexFile:
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()


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


def shown(index: RunIndex, *status: str) -> Sequence[str]:
    try:
        return index.query(status=frozenset(status) or None).run_ids
    except Unavailable:
        return ()


def paged(index: RunIndex, workflow: str, limit: int) -> Iterator[list[str]]:
    cursor = None
    while True:
        page = index.query(workflow, limit=limit, cursor=cursor)
        yield page.run_ids
        cursor = page.next
        if cursor is None:
            return
