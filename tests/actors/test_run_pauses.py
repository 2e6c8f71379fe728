"""Runs that are paused, in a real shard: what is withdrawn, what is put back, and who remembers it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Raw

from penstock.actors.control import pausing, run_operations
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs import actor_state
from penstock.broker import names
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store, open_store
from penstock.broker.streams import history
from penstock.broker.worker_messages import decode
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, NotFound
from penstock.engine.run.events import Event, StepCompleted, WorkflowCompleted
from penstock.engine.run.execution.children import child_run_id
from penstock.engine.run.state import Run, RunStatus, StepStatus, from_snapshot
from tests.support.waiting import until, until_true
from tests.support.world import chain, echo, ended, register, start


@asynccontextmanager
async def shard(broker_settings: BrokerSettings) -> AsyncIterator[None]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")):
        yield


async def queued(store: Store, run_id: str) -> list[str]:
    """The steps of the run that have a task in a queue, each as often as it has one."""
    stored = await store.reader.subject(names.TASKS, "task.>")
    return sorted(decode(one.data).step_id for one in stored if one.subject.endswith(run_id))


async def until_queued(store: Store, run_id: str, *steps: str) -> None:
    async def are_there() -> bool:
        return await queued(store, run_id) == sorted(steps)

    await until(are_there)


@pytest.fixture(autouse=True)
def saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run has a snapshot: it shows that its shard has carried out everything."""
    monkeypatch.setattr(actor_state, "EVENTS_MIN", 0)


async def until_saved(store: Store, run_id: str, *, paused: bool) -> Run:
    """The run's snapshot, once it says so: its shard has carried out everything then."""

    async def saved() -> Run | None:
        entry = await store.runs.get(run_id)
        run = None if entry is None else from_snapshot(entry.value)
        return run if run is not None and (run.pause is not None) is paused else None

    return await until(saved)


async def test_a_queued_task_is_withdrawn_and_put_back_also_several_times_at_once(
    store: Store, broker_settings: BrokerSettings
) -> None:
    async with shard(broker_settings):
        run_id = await start(store, chain("held", 1))
        await until_queued(store, run_id, "s0")
        for _ in range(3):
            assert (await pausing.pause(store, run_id)).pause is not None
            await until_queued(store, run_id)
            assert (await pausing.unpause(store, run_id)).pause is None
            await until_queued(store, run_id, "s0")
        async with echo(store, "held.echo") as worker:
            run = await ended(store, run_id)

    assert (RunStatus.COMPLETED, {f"{run_id}.s0": 1}) == (run.status, dict(worker.seen))


async def test_pauses_and_resumptions_in_one_turn_leave_one_task(store: Store, broker_settings: BrokerSettings) -> None:
    """Ordered while no engine lives."""
    run_id = await start(store, chain("turned", 1))
    for _ in range(3):
        await pausing.pause(store, run_id)
        await pausing.unpause(store, run_id)
    async with shard(broker_settings):
        await until_saved(store, run_id, paused=False)
        assert ["s0"] == await queued(store, run_id)
        async with echo(store, "turned.echo") as worker:
            await ended(store, run_id)

    assert {f"{run_id}.s0": 1} == dict(worker.seen)


async def test_a_run_that_is_paused_while_no_engine_lives_begins_nothing(
    store: Store, broker_settings: BrokerSettings
) -> None:
    run_id = await start(store, chain("unowned", 1))
    paused = await pausing.pause(store, run_id)
    async with shard(broker_settings), echo(store, "unowned.echo") as worker:
        run = await until_saved(store, run_id, paused=True)
        assert (run.pause, []) == (paused.pause, await queued(store, run_id))
        assert {} == dict(worker.seen)
        await pausing.unpause(store, run_id)
        assert (await ended(store, run_id)).status is RunStatus.COMPLETED


async def test_the_task_of_what_runs_stays_so_that_it_is_delivered_again_if_its_worker_dies(
    store: Store, broker_settings: BrokerSettings
) -> None:
    taken: list[Delivery] = []
    async with shard(broker_settings):
        async with store.tasks.consume("kept.echo", taken.append, batch=1, room=lambda: 1 - len(taken)):
            run_id = await start(store, {**chain("kept", 1)})
            await until_true(lambda: bool(taken))
            await pausing.pause(store, run_id)
            await until_saved(store, run_id, paused=True)
            assert ["s0"] == await queued(store, run_id)
        await taken[0].give_back()
        await pausing.unpause(store, run_id)
        async with echo(store, "kept.echo") as worker:
            run = await ended(store, run_id)

    assert (RunStatus.COMPLETED, {f"{run_id}.s0": 1}) == (run.status, dict(worker.seen))


async def test_a_paused_run_stays_paused_for_the_next_owner_and_what_came_due_goes_off_then(
    store: Store, broker_settings: BrokerSettings
) -> None:
    sleeper = {"id": "nap", "type": "sleep", "config": {"duration": "500ms"}}
    document: dict[str, Any] = {"name": "owned", "steps": [sleeper, {"id": "b", "task": "b", "depends_on": ["nap"]}]}
    async with shard(broker_settings):
        run_id = await start(store, document)
        await pausing.pause(store, run_id)
        await until_saved(store, run_id, paused=True)
    async with shard(broker_settings):

        async def has_fired() -> bool:
            run = await run_operations.get(store, run_id)
            return run.pause is not None and run.pause.timers == ("sleep.nap",)

        await until(has_fired)
    async with shard(broker_settings), echo(store, "b"):
        run = await run_operations.get(store, run_id)
        assert (run.steps["nap"].status, run.steps["b"].status) == (StepStatus.RUNNING, StepStatus.PENDING)
        await pausing.unpause(store, run_id)
        run = await ended(store, run_id)

    assert run.status is RunStatus.COMPLETED


async def test_queued_elements_are_withdrawn_and_those_that_run_are_not(
    store: Store, broker_settings: BrokerSettings
) -> None:
    document = {"name": "mapped", "steps": [{"id": "m", "type": "map", "task": "each"}]}
    taken: list[Delivery] = []
    async with shard(broker_settings):
        async with store.tasks.consume("each", taken.append, batch=1, room=lambda: 1 - len(taken)):
            run_id = await start(store, document, b"[1,2,3,4,5]")
            await until_queued(store, run_id, *(f"m.{n}" for n in range(5)))
            await until_true(lambda: bool(taken))
            await pausing.pause(store, run_id)
            running = decode(taken[0].data).step_id
            await until_queued(store, run_id, running)
        await store.history.append(
            StepCompleted(run_id=run_id, step_id=running, attempt_number=1, payload=Raw(b"10"), worker_id="w")
        )
        await taken[0].ack()
        await pausing.unpause(store, run_id)
        async with echo(store, "each") as worker:
            run = await ended(store, run_id)

    assert run.status is RunStatus.COMPLETED
    assert {f"{run_id}.m.{n}": 1 for n in range(5) if f"m.{n}" != running} == dict(worker.seen)


@pytest.mark.parametrize("children", [False, True])
async def test_children_go_on_unless_they_are_paused_too(
    store: Store, broker_settings: BrokerSettings, children: bool
) -> None:
    await register(store, chain("child", 1))
    parent = {"name": "parent", "steps": [{"id": "c", "type": "sub_workflow", "config": {"workflow": "child"}}]}
    async with shard(broker_settings):
        run_id = await start(store, parent)
        child = child_run_id(run_id, "c", 1)
        await until_queued(store, child, "s0")
        await pausing.pause(store, run_id, children=children)
        if children:
            await until_queued(store, child)
            assert (await run_operations.get(store, child)).pause is not None
            await pausing.unpause(store, run_id, children=True)
        async with echo(store, "child.echo"):
            assert (await ended(store, child)).status is RunStatus.COMPLETED
        run = await ended(store, run_id)

    assert run.status is RunStatus.COMPLETED
    assert run.pause is None, "with its only step it has completed"


async def test_a_child_that_is_paused_alone_goes_on_with_its_parent_each_time_that_this_is_asked_for(
    store: Store, broker_settings: BrokerSettings
) -> None:
    await register(store, chain("child", 1))
    parent = {"name": "parent", "steps": [{"id": "c", "type": "sub_workflow", "config": {"workflow": "child"}}]}
    async with shard(broker_settings):
        run_id = await start(store, parent)
        child = child_run_id(run_id, "c", 1)
        await until_queued(store, child, "s0")
        for _ in range(2):
            await pausing.pause(store, child)
            await until_queued(store, child)
            await pausing.unpause(store, run_id, children=True)
            await until_queued(store, child, "s0")

        assert (await run_operations.get(store, child)).pause is None


async def test_a_scheduled_run_whose_time_comes_starts_when_it_is_resumed(
    store: Store, broker_settings: BrokerSettings
) -> None:
    definition, digest = await register(store, chain("later", 1))
    async with shard(broker_settings), echo(store, "later.echo") as worker:
        at = datetime.now(UTC) + timedelta(seconds=1.5)
        run_id = (await run_operations.schedule(store, definition, digest, Raw(b"1"), at)).run_id
        assert (await pausing.pause(store, run_id)).status is RunStatus.SCHEDULED

        async def is_kept() -> bool:
            run = await run_operations.get(store, run_id)
            return run.pause is not None and run.pause.starts

        await until(is_kept)
        run = await run_operations.get(store, run_id)
        assert (run.status, dict(worker.seen)) == (RunStatus.SCHEDULED, {})
        await pausing.unpause(store, run_id)
        assert (await ended(store, run_id)).status is RunStatus.COMPLETED


async def test_a_scheduled_run_whose_time_has_come_while_it_is_paused_can_be_unscheduled(
    store: Store, broker_settings: BrokerSettings
) -> None:
    definition, digest = await register(store, chain("never", 1))
    async with shard(broker_settings):
        at = datetime.now(UTC) + timedelta(seconds=1.2)
        run_id = (await run_operations.schedule(store, definition, digest, Raw(b"1"), at)).run_id
        await pausing.pause(store, run_id)

        async def is_kept() -> bool:
            run = await run_operations.get(store, run_id)
            return run.pause is not None and run.pause.starts

        await until(is_kept)
        await run_operations.unschedule(store, run_id)
        assert (await run_operations.get(store, run_id)).status is RunStatus.CANCELLED


async def test_pausing_twice_and_resuming_what_is_not_paused_append_nothing(store: Store) -> None:
    run_id = await start(store, chain("twice", 1))
    first = await pausing.pause(store, run_id)
    again = await pausing.pause(store, run_id)
    assert (first.pause, first.seq) == (again.pause, again.seq)
    await pausing.unpause(store, run_id)
    before = await run_operations.get(store, run_id)
    assert before.seq == (await pausing.unpause(store, run_id)).seq


async def test_an_ended_run_and_an_unknown_one_cannot_be_paused(store: Store) -> None:
    run_id = await start(store, chain("over", 1))
    await store.history.append(StepCompleted(run_id=run_id, step_id="s0", attempt_number=1, payload=Raw(b"1")))
    await store.history.append(WorkflowCompleted(run_id=run_id))
    for order in (pausing.pause, pausing.unpause):
        with pytest.raises(Conflict, match=f"run {run_id} is completed already"):
            await order(store, run_id)
        with pytest.raises(NotFound):
            await order(store, "0198c0de" * 4)


async def test_many_runs_are_paused_and_resumed_together(store: Store, broker_settings: BrokerSettings) -> None:
    async with shard(broker_settings):
        run_ids = [await start(store, chain("many", 1)) for _ in range(20)]
        over = await start(store, chain("many", 1))
        await run_operations.cancel(store, over)
        paused = await pausing.pause_all(store, [*run_ids, over])
        assert (run_ids, [over]) == (paused.done, [one.run_id for one in paused.skipped])
        assert "it is cancelled" == paused.skipped[0].reason
        await asyncio.gather(*(until_queued(store, run_id) for run_id in run_ids))
        resumed = await pausing.unpause_all(store, run_ids)
        assert run_ids == resumed.done
        async with echo(store, "many.echo") as worker:
            await asyncio.gather(*(ended(store, run_id) for run_id in run_ids))

    assert {f"{run_id}.s0": 1 for run_id in run_ids} == dict(worker.seen)


async def test_runs_that_have_ended_get_no_order(store: Store) -> None:
    run_id, over = await start(store, chain("order", 1)), await start(store, chain("order", 1))
    await run_operations.cancel(store, over)
    assert [run_id] == (await pausing.pause_all(store, [run_id, over])).done
    assert [2, 2] == [len(await store.history.read(one)) for one in (run_id, over)]
    assert "workflow.paused" not in str(await store.history.read(over))


async def test_a_run_that_ends_while_many_are_paused_is_skipped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is open when it is looked at, and has ended when the order is stored."""
    run_ids = [await start(store, chain("meanwhile", 1)) for _ in range(3)]
    append_orders = store.history.append_orders

    async def after_its_end(events: Sequence[Event]) -> int:
        await run_operations.cancel(store, run_ids[1])
        return await append_orders(events)

    monkeypatch.setattr(store.history, "append_orders", after_its_end)
    paused = await pausing.pause_all(store, run_ids)
    assert [run_ids[0], run_ids[2]] == paused.done
    assert [(run_ids[1], "it is cancelled")] == [(one.run_id, one.reason) for one in paused.skipped]


async def test_runs_with_events_between_two_sequences_are_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = await start(store, chain("moved", 1)), await start(store, chain("moved", 1))
    since = await store.history.last_seq()
    until = await store.history.append(WorkflowCompleted(run_id=other))
    after = await store.history.append(WorkflowCompleted(run_id=one))
    assert [other] == await store.history.moved([one, other], since, until)
    assert [one] == await store.history.moved([one, other], until, after)
    assert [] == await store.history.moved([one, other], after, after)
    monkeypatch.setattr(history, "MOVED_EVENTS_MAX", 1)
    assert [one, other] == await store.history.moved([one, other], since, after)
