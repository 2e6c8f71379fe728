"""One shard over a real broker: what it does with runs, and what is left of them when it goes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from penstock.actors.control import run_operations
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs import effects, run_actor
from penstock.actors.runs.end_state import OwnEnd, complete
from penstock.actors.runs.loading import LoadedRun, Owner, load
from penstock.actors.runs.past_runs import load_at
from penstock.actors.runs.shard import Shard
from penstock.actors.runs.shared.mailbox import PendingEvent
from penstock.broker import names
from penstock.broker.names import owner_seq, owner_state
from penstock.broker.nats.headers import into_empty
from penstock.broker.nats.pull import Delivery
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store, open_store
from penstock.broker.streams.history import History
from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import SCHEDULE_AHEAD_MIN_S
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict
from penstock.engine.run.advance import fold
from penstock.engine.run.event_payloads import Completed, SignalRef
from penstock.engine.run.events import SignalReceived, StepCompleted, StepStarted, WorkflowCompleted
from penstock.engine.run.state import Run, RunStatus, StepStatus, from_snapshot, to_snapshot
from penstock.engine.run.workflow import Workflow
from penstock.engine.times import rfc3339
from tests.support.waiting import until, until_true
from tests.support.world import Echo, chain, echo, ended, register, start


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


@asynccontextmanager
async def killed_shard(settings: BrokerSettings, store: Store) -> AsyncIterator[Shard]:
    """A shard that ends as by SIGKILL: its connection is cut, nothing is written or acknowledged any more."""
    async with open_store(settings, "killed") as own, open_shard(own, new_member("shard")) as shard:
        yield shard
        await own.broker.client.close()
        shard.lease.end()


async def snapshot(store: Store, run_id: str) -> Run | None:
    entry = await store.runs.get(run_id)
    return None if entry is None else from_snapshot(entry.value)


async def snapshot_where(store: Store, run_id: str, holds: Callable[[Run], bool]) -> Run:
    async def find() -> Run | None:
        found = await snapshot(store, run_id)
        return found if found is not None and holds(found) else None

    found = await until(find)
    assert found is not None
    return found


async def gone(store: Store, stream: str, subject: str) -> None:
    async def is_gone() -> bool:
        return not await store.reader.last(stream, [subject])

    await until(is_gone)


async def test_chain_runs_to_the_end_and_its_snapshot_is_the_fold_of_its_log(store: Store, shard: Shard) -> None:
    async with echo(store, "a.echo"):
        run_id = await start(store, chain("a"), b'{"n":1}')
        run = await ended(store, run_id)
    stored = await store.history.read(run_id)
    carried = owner_state(stored[-1].headers)
    assert carried is not None
    assert carried == to_snapshot(await load_at(store, run_id, stored[-2].seq))
    assert run.status is RunStatus.COMPLETED
    assert [step.status for step in run.steps.values()] == [StepStatus.COMPLETED] * 3
    assert bytes(run.steps["s2"].output) == b'{"n":1}'
    assert run == await load_at(store, run_id, stored[-1].seq)
    await until_true(lambda: run_id not in shard.actors)
    assert await store.runs.get(run_id) is None


async def test_a_run_whose_end_orders_something_has_a_snapshot(store: Store, shard: Shard) -> None:
    async with echo(store, "timed.echo"):
        run = await ended(store, await start(store, {**chain("timed", 1), "timeout": "1h"}))
    saved = await snapshot_where(store, run.run_id, lambda found: found.ended)
    assert saved == run
    [*_, last] = await store.history.read(run.run_id)
    assert owner_state(last.headers) is None


async def test_an_event_between_the_state_and_the_end_is_not_lost(store: Store, shard: Shard) -> None:
    """The owner has not seen it when it writes the end: that is then stored without a state."""
    run_id = await start(store, chain("between", 1))
    await until(lambda: store.reader.one(names.TASKS, names.task_subject("between.echo", run_id)))
    run = shard.actors[run_id].run
    assert run is not None
    await store.history.append(SignalReceived(run_id=run_id, payload=SignalRef(name="late", size=0)))
    end = WorkflowCompleted(run_id=run_id, payload=Completed(output=Raw(b"1")))
    with pytest.raises(Conflict):
        await store.history.send_end(end, run.seq, state=to_snapshot(run).decode())
    done = replace(run, steps={"s0": replace(run.steps["s0"], status=StepStatus.COMPLETED)})
    workflow = await store.definitions.load(run.workflow_id, run.digest)
    assert await complete(store.history, workflow, done, end) is None
    [*_, last] = await store.history.read(run_id)
    assert b'"workflow.completed"' in last.data
    assert owner_state(last.headers) is None
    assert run.seq == owner_seq(last.headers)


async def test_an_end_that_its_owner_has_stored_is_handled_when_it_is_delivered(store: Store, shard: Shard) -> None:
    async with echo(store, "owned.echo"):
        run = await ended(store, await start(store, chain("owned", 1)))
    [*_, last] = await store.history.read(run.run_id)
    queue = shard._queues[names.partition(run.run_id)]
    await until_true(lambda: bool(queue.events) and queue.events[-1].delivery.seq == last.seq)
    assert queue.events[-1].handled
    assert queue.events[-1].delivery.data == b""
    assert not queue.ends
    assert run.run_id not in shard.actors
    assert shard.metrics._runs["owned", "completed"] == 1
    assert sum(shard.metrics.commit.counts) == len(queue.events)


async def test_an_end_that_is_delivered_before_its_owner_knows_that_it_is_stored(store: Store, shard: Shard) -> None:
    run_id = await start(store, chain("early", 1))
    await until(lambda: store.reader.one(names.TASKS, names.task_subject("early.echo", run_id)))
    actor = shard.actors[run_id]
    assert actor.run is not None
    run, seq = actor.run, actor.run.seq + 1_000_000
    reply = f"$JS.ACK.{names.HISTORY}.c.1.{seq}.7.1790000000000000000.0"
    delivered = PendingEvent(Delivery(store.broker, names.stored_subject(run_id), reply, b"{}"), 0.0, False)
    workflow = await store.definitions.load(run.workflow_id, run.digest)
    end = WorkflowCompleted(run_id=run_id, payload=Completed(output=Raw(b"1")))
    actor._pending.append(delivered)
    actor._take_end(workflow, run, OwnEnd(end, replace(run, status=RunStatus.COMPLETED, seq=seq)))
    assert seq not in actor.queue.ends  # it is here already
    actor._pending.clear()
    actor._take_end(workflow, run, OwnEnd(end, replace(run, status=RunStatus.COMPLETED, seq=seq)))
    assert seq in actor.queue.ends
    actor.queue.ends.clear()


async def test_a_late_event_finds_the_run_as_its_end_left_it(store: Store, shard: Shard) -> None:
    async with echo(store, "late.echo"):
        run = await ended(store, await start(store, chain("late", 2)))
    await store.history.append(StepCompleted(run_id=run.run_id, step_id="s0"), message_id=f"{run.run_id}.again")
    saved = await snapshot_where(store, run.run_id, lambda found: found.ended)
    assert run == saved == (await load(store, run.run_id)).run
    assert 1 == sum(b'"workflow.completed"' in one.data for one in await store.history.read(run.run_id))


async def test_a_run_whose_end_is_not_its_last_event_has_a_snapshot(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event is stored behind the end, and delivered before the turn is over that has stored the end."""

    async def complete_late(history: History, workflow: Workflow, run: Run, event: WorkflowCompleted) -> OwnEnd | None:
        found = await complete(history, workflow, run, event)
        late = StepCompleted(run_id=run.run_id, step_id="s0")
        seq = await store.history.append(late, message_id=f"{run.run_id}.again")
        actor = shard.actors[run.run_id]
        await until_true(lambda: actor._pending[-1].delivery.seq == seq)
        return found

    monkeypatch.setattr(effects, "complete", complete_late)
    async with echo(store, "behind.echo"):
        run = await ended(store, await start(store, chain("behind", 1)))
    saved = await snapshot_where(store, run.run_id, lambda found: found.ended)
    assert run == saved
    [*_, end, _] = await store.history.read(run.run_id)
    assert owner_state(end.headers) is not None


async def test_five_hundred_runs_started_together_all_complete_once(store: Store, shard: Shard) -> None:
    definition, digest = await register(store, chain("many"))
    async with echo(store, "many.echo") as worker:
        run_ids = await run_operations.start_all(store, definition, digest, [Raw(b"%d" % n) for n in range(500)])
        runs = [await ended(store, run_id) for run_id in run_ids]
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    assert set(worker.seen.values()) == {1}
    assert len(worker.seen) == 1500


async def test_an_event_of_a_partition_that_was_given_up_is_the_next_owners_business(shard: Shard) -> None:
    run_id = new_run_id()
    reply = f"$JS.ACK.{names.HISTORY}.c.1.900000.7.1790000000000000000.0"
    delivery = Delivery(shard.store.broker, names.stored_subject(run_id), reply, b"{}")
    await until_true(lambda: names.partition(run_id) in shard.partitions)
    queue = shard._queues[names.partition(run_id)]
    shard.take(queue, delivery)
    await until_true(lambda: shard.metrics.dead_lettered == 1)  # of a run that was never started

    await shard.give_up(names.partition(run_id))
    shard.take(queue, Delivery(shard.store.broker, names.stored_subject(run_id), reply, b"{}"))
    await until_true(lambda: shard.actors[run_id].task is None)

    assert not queue.owned
    assert shard.metrics.dead_lettered == 1


async def test_failing_step_is_tried_again_and_then_dead_lettered_before_the_run_fails(
    store: Store, shard: Shard
) -> None:
    async def fail(worker: Echo, task: TaskPayload) -> None:
        await worker.fail(task, f"no luck {task.attempt}")

    document = chain("bad", 1, retry={"max_attempts": 2, "strategy": "fixed", "initial_delay": "10ms"})
    async with echo(store, "bad.echo", fail) as worker:
        run_id = await start(store, document)
        run = await ended(store, run_id)
    dead = await store.reader.subject(names.DEAD, names.dead_subject("bad.echo", run_id, "s0"))
    assert run.status is RunStatus.FAILED
    assert run.error == 'step "s0" failed: no luck 3'
    assert run.steps["s0"].attempts == 3
    assert worker.seen[f"{run_id}.s0"] == 3
    assert len(dead) == 1


async def test_step_timeout_fails_the_attempt_and_the_next_one_completes(store: Store, shard: Shard) -> None:
    async def slow_first(worker: Echo, task: TaskPayload) -> None:
        if task.attempt == 1:
            await worker.started(task)
        else:
            await worker.complete(task)

    document = chain("slow", 1, timeout="100ms", retry={"max_attempts": 1})
    async with echo(store, "slow.echo", slow_first):
        run = await ended(store, await start(store, document))
    assert run.status is RunStatus.COMPLETED
    assert run.steps["s0"].attempts == 2


async def test_workflow_timeout_ends_a_run_that_no_worker_takes_up(store: Store, shard: Shard) -> None:
    run = await ended(store, await start(store, {**chain("nobody", 2), "timeout": "150ms"}))
    assert run.status is RunStatus.FAILED
    assert run.error == "workflow timeout exceeded (150ms)"
    assert {step.status for step in run.steps.values()} == {StepStatus.CANCELLED}


async def test_long_timer_becomes_the_brokers_and_is_withdrawn_when_the_run_ends(store: Store, shard: Shard) -> None:
    run_id = await start(store, {**chain("long", 1), "timeout": "1h"})
    subject = names.schedule_subject(run_id, "workflow")
    await until(lambda: store.reader.last(names.HISTORY, [subject]))
    await run_operations.cancel(store, run_id)
    await ended(store, run_id)
    await gone(store, names.HISTORY, subject)


async def test_cancel_takes_queued_tasks_back_and_late_completion_is_ignored(store: Store, shard: Shard) -> None:
    run_id = await start(store, chain("stop", 2))
    subject = names.task_subject("stop.echo", run_id)
    await until(lambda: store.reader.last(names.TASKS, [subject]))
    await run_operations.cancel(store, run_id, "not needed")
    run = await ended(store, run_id)
    await snapshot_where(store, run_id, lambda found: found.ended)
    await store.history.append(StepCompleted(run_id=run_id, step_id="s0"))
    await gone(store, names.TASKS, subject)
    after = await run_operations.get(store, run_id)
    assert (run.status, after.status) == (RunStatus.CANCELLED, RunStatus.CANCELLED)
    assert after.steps["s0"].status is StepStatus.CANCELLED


async def test_malformed_event_is_dead_lettered_and_stops_nothing(store: Store, shard: Shard) -> None:
    run_id = await start(store, chain("odd", 1))
    for body in (
        b"not json",
        b'{"type":"step.exploded","run_id":"x"}',
        b'{"type":"step.completed","run_id":"other","step_id":"s0"}',
    ):
        await store.publisher.send(names.history_subject(run_id), body)
    async with echo(store, "odd.echo"):
        run = await ended(store, run_id)
    dead = await store.reader.subject(names.DEAD, names.dead_history_subject(run_id))
    assert run.status is RunStatus.COMPLETED
    assert len(dead) == 3


async def test_events_of_a_run_that_nobody_started_are_dead_lettered(store: Store, shard: Shard) -> None:
    run_id = new_run_id()
    await store.history.append(StepStarted(run_id=run_id, step_id="s0"))
    await until(lambda: store.reader.subject(names.DEAD, names.dead_history_subject(run_id)))
    assert (await load(store, run_id)).run is None


async def test_runs_of_a_killed_shard_go_on_with_the_next_one(store: Store, broker_settings: BrokerSettings) -> None:
    definition, digest = await register(store, chain("heir"))
    async with echo(store, "heir.echo") as worker:
        async with killed_shard(broker_settings, store):
            run_ids = await run_operations.start_all(store, definition, digest, [Raw(b"1")] * 200)
            await ended_or_moved(worker, 150)
        async with open_store(broker_settings, "heir") as own, open_shard(own, new_member("shard")):
            runs = [await ended(store, run_id) for run_id in run_ids]
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    for run_id in run_ids:
        loaded = await load(store, run_id)
        assert loaded.run is not None
        assert loaded.workflow is not None
        assert loaded.run.ended


async def ended_or_moved(worker: Echo, tasks: int) -> None:
    await until_true(lambda: worker.seen.total() >= tasks)


async def test_timer_in_memory_of_a_killed_shard_fires_with_the_next_one(
    store: Store, broker_settings: BrokerSettings
) -> None:
    async def only_start(worker: Echo, task: TaskPayload) -> None:
        await worker.started(task)

    async with echo(store, "timer.echo", only_start) as worker:
        async with killed_shard(broker_settings, store):
            run_id = await start(store, chain("timer", 1, timeout="1s"))
            await ended_or_moved(worker, 1)
        async with open_store(broker_settings, "heir") as own, open_shard(own, new_member("shard")):
            run = await ended(store, run_id)
    assert run.status is RunStatus.FAILED
    assert run.error == 'step "s0" failed: step timeout exceeded (1s)'


async def test_run_that_left_memory_comes_back_with_its_next_event(store: Store, shard: Shard) -> None:
    run_id = await start(store, chain("back", 1))
    await until(lambda: store.reader.last(names.TASKS, [names.task_subject("back.echo", run_id)]))
    await until_true(lambda: shard.actors[run_id].idle)
    del shard.actors[run_id]
    async with echo(store, "back.echo"):
        run = await ended(store, run_id)
    assert run.status is RunStatus.COMPLETED


async def test_peaceful_end_leaves_nothing_to_repeat(store: Store, broker_settings: BrokerSettings) -> None:
    async with open_store(broker_settings, "peace") as own, open_shard(own, new_member("shard")):
        run_id = await start(store, chain("peace", 1))
        await until(lambda: store.reader.last(names.TASKS, [names.task_subject("peace.echo", run_id)]))
    loaded = await load(store, run_id)
    claim = (await store.owners.read()).claims[names.partition(run_id)].claim
    again = await load(store, run_id, owner=Owner(claim.start, lambda *_: pytest.fail("an event is counted again")))
    assert () == again.due
    assert claim.owner == ""
    assert loaded.run is not None
    assert claim.start > loaded.run.seq
    assert fold(loaded.workflow, loaded.run, []) == loaded.run  # type: ignore[arg-type]


async def test_run_whose_step_input_is_too_large_for_the_broker_fails_with_that_text(
    store: Store, shard: Shard
) -> None:
    async def big(worker: Echo, task: TaskPayload) -> None:
        await worker.complete(task, b'"' + b"x" * 1_000_000 + b'"')

    wide = [{"id": f"w{n}", "task": "wide.echo"} for n in range(9)]
    document = {
        "name": "wide",
        "steps": [*wide, {"id": "all", "task": "wide.all", "depends_on": [step["id"] for step in wide]}],
    }
    async with echo(store, "wide.echo", big):
        run = await ended(store, await start(store, document))
    assert run.status is RunStatus.FAILED
    needed = 9 * (1_000_002 + len('"w0":,')) + 1
    too_large = f"{needed} bytes are more than the broker accepts in a message ({store.publisher.body_bytes_max})"
    assert run.error == f'the run cannot go on: step "all" cannot be given its input: {too_large}'


async def test_a_start_that_comes_after_the_cancellation_of_a_scheduled_run_moves_nothing(
    store: Store, shard: Shard
) -> None:
    """On a cluster it may have been on its way. The run is young, and its actor is gone already."""
    definition, digest = await register(store, chain("taken"))
    at = datetime.now(UTC) + timedelta(seconds=SCHEDULE_AHEAD_MIN_S)
    begun = await run_operations.schedule(store, definition, digest, Raw(b"1"), at + timedelta(hours=1))
    await run_operations.unschedule(store, begun.run_id)
    await snapshot_where(store, begun.run_id, lambda run: run.ended)
    await until_true(lambda: begun.run_id not in shard.actors)
    await store.history.append(
        run_operations.started(begun.run_id, definition, digest, Raw(b"1"), rfc3339(at.timestamp()))
    )
    behind = next(one for one in iter(new_run_id, "") if names.partition(one) == names.partition(begun.run_id))
    await store.history.append(run_operations.started(behind, definition, digest, Raw(b"1"), run_operations.now()))
    await until(lambda: store.reader.one(names.TASKS, names.task_subject("taken.echo", behind)))
    assert await store.reader.one(names.TASKS, names.task_subject("taken.echo", begun.run_id)) is None
    assert RunStatus.CANCELLED is (await run_operations.get(store, begun.run_id)).status


@pytest.fixture
def opened_by_reading(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of runs for which a shard has looked into the store."""
    found: list[str] = []

    async def noted(store: Store, run_id: str, **more: Any) -> LoadedRun:
        found.append(run_id)
        return await load(store, run_id, **more)

    monkeypatch.setattr(run_actor, "load", noted)
    return found


async def keyed(store: Store, document: dict[str, Any], key: str) -> str:
    return (await run_operations.begin(store, *await register(store, document), Raw(b"1"), key)).run_id


async def test_a_run_with_an_idempotency_key_is_not_looked_for_in_the_store(
    store: Store, shard: Shard, opened_by_reading: list[str]
) -> None:
    """Its id says nothing of its age, but its history was empty."""
    async with echo(store, "keyed.echo"):
        run = await ended(store, await keyed(store, chain("keyed"), "order-7"))
    assert (RunStatus.COMPLETED, []) == (run.status, opened_by_reading)


async def test_a_run_with_an_idempotency_key_is_read_by_the_next_shard(
    store: Store, broker_settings: BrokerSettings, opened_by_reading: list[str]
) -> None:
    """Its start is delivered there for the first time, but other events have come since."""

    async def only_start(worker: Echo, task: TaskPayload) -> None:
        await worker.started(task)

    async with echo(store, "keyed.echo", only_start) as worker:
        async with killed_shard(broker_settings, store):
            run_id = await keyed(store, chain("keyed", 1, timeout="1s"), "order-8")
            await ended_or_moved(worker, 1)
        assert [] == opened_by_reading
        async with open_store(broker_settings, "heir") as own, open_shard(own, new_member("shard")):
            run = await ended(store, run_id)
    assert run.error == 'step "s0" failed: step timeout exceeded (1s)'
    assert [run_id] == opened_by_reading


async def test_only_what_was_stored_into_an_empty_history_says_so(store: Store) -> None:
    run_id = await keyed(store, chain("keyed", 1), "order-9")
    last_seq = await store.history.append(StepStarted(run_id=run_id, step_id="s0", attempt_number=1))
    assert await store.history.append_next(StepCompleted(run_id=run_id, step_id="s0", attempt_number=1), last_seq)
    unkeyed = await start(store, chain("keyed", 1))

    stored = [*await store.history.read(run_id), *await store.history.read(unkeyed)]
    assert [True, False, False, False] == [into_empty(one.headers) for one in stored]
