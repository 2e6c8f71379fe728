"""The run index over a real broker: what it shows of runs, and in which status."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from uuid_utils import uuid7

from penstock.actors.index.instants import instant_us
from penstock.actors.index.rows import Change, Row, fold
from penstock.actors.index.run_index import RunIndex
from penstock.broker.store import Store
from penstock.engine.errors import Invalid
from penstock.engine.run.events import (
    StepCompleted,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowResumed,
    WorkflowScheduled,
    WorkflowStarted,
)
from penstock.engine.run.state import RunStatus
from tests.support.run_index import (
    NOON,
    append,
    publish,
    scheduled,
    seen,
    start_many,
    started,
)


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


def paged(index: RunIndex, workflow: str, limit: int) -> Iterator[list[str]]:
    cursor = None
    while True:
        page = index.query(workflow, limit=limit, cursor=cursor)
        yield page.run_ids
        cursor = page.next
        if cursor is None:
            return


def test_a_run_took_from_its_start_to_its_last_end() -> None:
    changes = [
        Change("a", WorkflowScheduled, 1, "w", 100),
        Change("a", WorkflowStarted, 2, "w", 500, at_us=500),
        Change("a", WorkflowFailed, 3, folded=2, at_us=700),
        Change("a", WorkflowResumed, 4, folded=3),
        Change("a", WorkflowCompleted, 5, folded=4, at_us=1500),
        Change("b", WorkflowScheduled, 6, "w", 100),
        Change("b", WorkflowCancelled, 7, at_us=900),
    ]
    rows = fold({}, changes)
    assert [(500, 1000), (None, None)] == [(rows[one].started_us, rows[one].took_us) for one in "ab"]
