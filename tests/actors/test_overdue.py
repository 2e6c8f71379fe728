"""What was due while the broker had no room comes when there is some."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.maintenance import overdue as maintenance
from penstock.actors.maintenance.overdue import OverdueSchedules
from penstock.broker import names
from penstock.broker.nats.direct import Stored
from penstock.broker.nats.headers import SCHEDULE, SCHEDULE_TARGET
from penstock.broker.store import Store, open_store
from penstock.broker.streams.events import Tick
from penstock.broker.streams.provisioning import provision
from penstock.engine.run.events import WorkflowStarted, decode
from tests.support.little_room import fill, make_room, small_broker
from tests.support.waiting import until
from tests.support.world import chain, register

SOON = timedelta(seconds=1.5)


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Store]:
    """A connection to a broker with little room."""
    with small_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            yield store


async def started(store: Store, run_id: str) -> bool:
    return any(isinstance(decode(one.data), WorkflowStarted) for one in await store.history.read(run_id))


async def ticked(store: Store, trigger: str) -> int:
    return len(await store.reader.subject(names.EVENTS, names.cron_target(trigger)))


@pytest.mark.parametrize("remembered_max", [maintenance.REMEMBERED_MAX, 0])
async def test_what_was_due_without_room_comes_once_when_there_is_some(
    small: Store, remembered_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "REMEMBERED_MAX", remembered_max)
    overdue = OverdueSchedules(small)
    assert 0 == await overdue.repeat(0.0)
    definition, digest = await register(small, chain("overdue"))
    at = datetime.now(UTC) + SOON
    begun = await run_operations.schedule(small, definition, digest, Raw(b"1"), at)
    assert await small.events.schedule(Tick("every", "g1", at.isoformat()))
    assert 0 == await overdue.repeat(0.0)
    await fill(small)

    async def is_over() -> bool:
        return await small.history.now() > at.timestamp() + 1

    await until(is_over)
    await make_room(small)
    repeated = await overdue.repeat(1.0)
    assert repeated in (0, 2)  # a broker that tries again by itself would be welcome

    async def has_come() -> bool:
        return await started(small, begun.run_id) and await ticked(small, "every") > 0

    await until(has_come)
    assert 0 == await overdue.repeat(0.0)
    assert (2, 1) == (len(await small.history.read(begun.run_id)), await ticked(small, "every"))


async def test_what_is_not_due_is_left_alone(small: Store) -> None:
    definition, digest = await register(small, chain("ahead"))
    begun = await run_operations.schedule(small, definition, digest, Raw(b"1"), datetime.now(UTC) + timedelta(hours=1))
    before = await small.reader.one(names.HISTORY, names.start_subject(begun.run_id))
    assert before is not None
    assert 0 == await OverdueSchedules(small).repeat(0.0)
    assert before == await small.reader.one(names.HISTORY, names.start_subject(begun.run_id))


async def test_what_was_published_or_taken_back_meanwhile_is_not_put_there_again(small: Store) -> None:
    definition, digest = await register(small, chain("meanwhile"))
    begun = await run_operations.schedule(small, definition, digest, Raw(b"1"), datetime.now(UTC) + timedelta(hours=1))
    there = await small.reader.one(names.HISTORY, names.start_subject(begun.run_id))
    assert there is not None
    await run_operations.unschedule(small, begun.run_id)
    assert not await small.schedules.repeat(there)
    assert await small.reader.one(names.HISTORY, names.start_subject(begun.run_id)) is None


@pytest.mark.parametrize("when", ["@at 0000-01-01T00:00:00Z", "@every 1h"])
async def test_what_others_have_scheduled_stands_in_nobodys_way(small: Store, when: str) -> None:
    headers = {SCHEDULE: when, SCHEDULE_TARGET: "event.others"}
    await small.publisher.send("cron.others.g", b"1", headers)
    assert 0 == await OverdueSchedules(small).repeat(0.0)


async def test_only_new_schedules_are_read_until_it_is_time_to_read_all(
    small: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, pages = list[int](), small.schedules.pages

    def noted(stream: str, from_seq: int = 1) -> AsyncIterator[list[Stored]]:
        if stream == names.HISTORY:
            read.append(from_seq)
        return pages(stream, from_seq)

    monkeypatch.setattr(small.schedules, "pages", noted)
    definition, digest = await register(small, chain("seldom"))
    begun = await run_operations.schedule(small, definition, digest, Raw(b"1"), datetime.now(UTC) + timedelta(hours=1))
    there = await small.reader.one(names.HISTORY, names.start_subject(begun.run_id))
    assert there is not None
    overdue = OverdueSchedules(small)
    assert [0, 0] == [await overdue.repeat(), await overdue.repeat()]
    assert [1, there.seq + 1] == read
    monkeypatch.setattr(maintenance, "READ_ALL_EVERY_S", 0.0)
    assert 0 == await overdue.repeat()
    assert [1, there.seq + 1, 1] == read
