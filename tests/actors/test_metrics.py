"""What a shard counts: every event once, whatever happens to the actor that folds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import pytest
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.run_actor import RunActor
from penstock.actors.runs.shard import Shard
from penstock.actors.runs.shared.run_metrics import seconds
from penstock.actors.triggers.starting import Starter
from penstock.broker import names
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.settings import BrokerSettings
from penstock.engine.run.events import StepCompleted, StepStarted
from penstock.engine.times import rfc3339
from penstock.engine.trigger.trigger import parse as parse_trigger
from penstock.telemetry.meters import Histogram
from tests.support.waiting import until, until_true
from tests.support.world import Echo, chain, echo, ended, register, start

AT = 1_900_000_000.0  # of workers whose clocks are far ahead; only the differences count


@asynccontextmanager
async def opened(settings: BrokerSettings, sample_ratio: float = 0.0) -> AsyncIterator[Shard]:
    async with open_store(settings, "shard") as own, open_shard(own, new_member("shard"), sample_ratio) as shard:
        yield shard


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with opened(broker_settings) as one:
        yield one


def steps(shard: Shard, task: str) -> dict[str, float]:
    found = shard.store.meters.counter("penstock_step_events_total")
    return {event: count for (of, event), count in found.items() if of == task}


def runs(shard: Shard, workflow: str) -> dict[str, float]:
    found = shard.store.meters.counter("penstock_run_events_total")
    return {event: count for (of, event), count in found.items() if of == workflow}


def reading(shard: Shard, name: str) -> float:
    return sum(sample.value for sample in shard.store.meters.samples() if sample.name == name)


def observed(histogram: Histogram) -> int:
    return sum(histogram.counts)


async def all_counted(shard: Shard, workflow: str, count: int) -> None:
    await until_true(
        lambda: runs(shard, workflow).get("completed", 0) + runs(shard, workflow).get("failed", 0) >= count
    )


async def test_runs_and_steps_are_counted_exactly(store: Store, shard: Shard) -> None:
    definition, digest = await register(store, chain("exact"))
    async with echo(store, "exact.echo"):
        run_ids = await run_operations.start_all(store, definition, digest, [Raw(b"%d" % n) for n in range(200)])
        for run_id in run_ids:
            await ended(store, run_id)
        await all_counted(shard, "exact", 200)
    assert {"started": 200, "completed": 200} == runs(shard, "exact")
    assert {"started": 600, "completed": 600} == steps(shard, "exact.echo")


async def test_retries_failures_and_skips_are_distinguished(store: Store, shard: Shard) -> None:
    async def second_time(worker: Echo, task: TaskPayload) -> None:
        await (worker.complete(task) if task.attempt == 2 else worker.fail(task, "not yet"))

    async def never(worker: Echo, task: TaskPayload) -> None:
        await worker.fail(task, "never", "non_retriable")

    retry = {"max_attempts": 3, "strategy": "fixed", "initial_delay": "10ms"}
    again = chain("again", 1, retry=retry)
    again["steps"].append(
        {
            "id": "s1",
            "task": "again.more",
            "depends_on": ["s0"],
            "skip_if": {"step_id": "s0", "field": "n", "op": "==", "value": 1},
        }
    )
    async with echo(store, "again.echo", second_time), echo(store, "never.echo", never):
        await ended(store, await start(store, again, b'{"n":1}'))
        await ended(store, await start(store, chain("never", 1, retry=retry)))
        await all_counted(shard, "again", 1)
        await all_counted(shard, "never", 1)
    assert {"started": 2, "failed": 1, "retried": 1, "completed": 1} == steps(shard, "again.echo")
    assert {"skipped": 1} == steps(shard, "again.more")
    assert {"started": 1, "failed": 1} == steps(shard, "never.echo")
    assert {"started": 1, "failed": 1} == runs(shard, "never")


def durations(shard: Shard, name: str, *labels: str) -> tuple[int, float]:
    """How many were observed, and their sum in s."""
    found = shard.store.meters.histograms(name)[labels]
    return observed(found), found.sum


async def test_runs_steps_and_waits_are_timed_by_what_their_events_say(store: Store, shard: Shard) -> None:
    run_id = await start(store, chain("timed", 2))
    for step_id, begun, done in (("s0", 10.0, 10.25), ("s1", 13.0, 13.5)):
        await store.history.append(StepStarted(run_id=run_id, step_id=step_id, timestamp=rfc3339(AT + begun)))
        await store.history.append(
            StepCompleted(run_id=run_id, step_id=step_id, timestamp=rfc3339(AT + done), payload=Raw(b"1"))
        )
    await ended(store, run_id)
    await all_counted(shard, "timed", 1)
    assert (2, 0.75) == durations(shard, "penstock_step_duration_seconds", "timed.echo")
    waits, waited_s = durations(shard, "penstock_queue_wait_seconds", "timed.echo")
    run = await ended(store, run_id)
    first_s = AT + 10.0 - datetime.fromisoformat(run.started_at or "").timestamp()
    assert (2, pytest.approx(first_s + 2.75)) == (waits, waited_s)
    assert 1 == durations(shard, "penstock_run_duration_seconds", "timed", "completed")[0]


async def test_a_retried_step_waits_once_and_every_execution_is_timed(store: Store, shard: Shard) -> None:
    async def second_time(worker: Echo, task: TaskPayload) -> None:
        await (worker.complete(task) if task.attempt == 2 else worker.fail(task, "not yet"))

    retry = {"max_attempts": 3, "strategy": "fixed", "initial_delay": "10ms"}
    async with echo(store, "retried.echo", second_time):
        await ended(store, await start(store, chain("retried", 1, retry=retry)))
        await all_counted(shard, "retried", 1)
    assert 2 == durations(shard, "penstock_step_duration_seconds", "retried.echo")[0]
    assert 1 == durations(shard, "penstock_queue_wait_seconds", "retried.echo")[0]


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        ("2026-11-22T06:03:46.375758Z", "2026-11-22T06:03:46.875758Z", 0.5),
        ("2026-11-22T06:03:59.9Z", "2026-11-22T06:04:00.1Z", 0.2),
        ("2026-11-22T23:59:59Z", "2026-11-23T00:00:01Z", 2.0),
        ("2026-11-22T06:03:46.5Z", "2026-11-22T06:03:46Z", 0.0),
        ("2026-11-22T06:03:46+02:00", "2026-11-22T06:03:46Z", 7200.0),
        ("yesterday", "2026-11-22T06:03:46Z", 0.0),
        ("", "", 0.0),
        ("2026-11-22T06:03:46", "2026-11-22T06:03:46Z", 0.0),
    ],
)
def test_the_time_between_two_moments_is_never_negative_and_never_an_error(
    begin: str, end: str, expected: float
) -> None:
    assert expected == pytest.approx(seconds(begin, end))


async def test_repeats_and_late_events_change_no_total(store: Store, shard: Shard) -> None:
    async with echo(store, "late.echo"):
        run_id = await start(store, chain("late", 1))
        await ended(store, run_id)
    before = reading(shard, "penstock_events_ignored_total")
    for number in range(3):
        event = StepCompleted(run_id=run_id, step_id="s0")
        await store.history.send(event, message_id=f"{run_id}.late.{number}")
    await until_true(lambda: reading(shard, "penstock_events_ignored_total") >= before + 3)
    assert {"started": 1, "completed": 1} == steps(shard, "late.echo")


async def test_events_that_find_their_run_out_of_memory_are_counted(store: Store, shard: Shard) -> None:
    run_id = await start(store, chain("away", 1))
    await until_true(lambda: run_id in shard.actors)
    await until(lambda: store.reader.last(names.TASKS, [names.task_subject("away.echo", run_id)]))
    await until_true(lambda: shard.actors[run_id].idle)
    del shard.actors[run_id]
    async with echo(store, "away.echo"):
        await ended(store, run_id)
        await all_counted(shard, "away", 1)
    assert {"started": 1, "completed": 1} == runs(shard, "away")
    assert {"started": 1, "completed": 1} == steps(shard, "away.echo")


async def test_an_actor_that_starts_over_counts_nothing_twice(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error after the fold makes the actor come back from the log, and fold the same events again."""
    failures = Counter[str]()
    settle = RunActor._settle

    async def fail_once(actor: RunActor) -> None:
        failures["settle"] += 1
        if failures["settle"] in (1, 3):
            raise RuntimeError("by the test")
        await settle(actor)

    monkeypatch.setattr(RunActor, "_settle", fail_once)
    async with echo(store, "over.echo"):
        await ended(store, await start(store, chain("over", 2)))
        await all_counted(shard, "over", 1)
        await until_true(lambda: failures["settle"] > 3)
    assert {"started": 1, "completed": 1} == runs(shard, "over")
    assert {"started": 2, "completed": 2} == steps(shard, "over.echo")


async def test_dead_lettered_events_are_counted(store: Store, shard: Shard) -> None:
    await store.publisher.send(names.history_subject(new_run_id()), b"not json")
    await until_true(lambda: reading(shard, "penstock_events_dead_lettered_total") == 1)


async def test_latencies_are_observed_for_each_event_and_publish(store: Store, shard: Shard) -> None:
    async with echo(store, "fast.echo"):
        await ended(store, await start(store, chain("fast", 1)))
        await until_true(lambda: observed(shard.metrics.commit) == 4)
    assert 4 == observed(shard.metrics.handling)
    assert 0 < shard.metrics.handling.sum <= shard.metrics.commit.sum
    publishes = shard.store.meters.histogram("penstock_publish_seconds")
    assert 2 == observed(publishes)  # the task, and the run's completion with its state
    assert 0 < publishes.sum < 10


async def test_the_shards_own_state_is_read_when_asked_for(store: Store, shard: Shard) -> None:
    assert 32 == reading(shard, "penstock_partition_owner")
    run_ids = [await start(store, {**chain("held", 1), "timeout": "1s"}) for _ in range(3)]
    await until_true(lambda: reading(shard, "penstock_actors") == 3)
    await until_true(lambda: reading(shard, "penstock_timers") == 3)
    assert reading(shard, "penstock_unsaved_runs") <= 3
    for run_id in run_ids:
        await ended(store, run_id)
    await until_true(lambda: reading(shard, "penstock_actors") == 0)
    assert 0 == reading(shard, "penstock_timers") == reading(shard, "penstock_mailbox_events")


async def test_spans_are_made_of_a_traced_run_and_of_no_other(store: Store, broker_settings: BrokerSettings) -> None:
    async with opened(broker_settings, sample_ratio=1.0) as shard, echo(store, "traced.echo"):
        run_id = await start(store, chain("traced", 2))
        await ended(store, run_id)
        await until_true(lambda: len(shard.store.telemetry.spans) == 3)
        first, second, run = shard.store.telemetry.spans
    assert ["step s0", "step s1", "run traced"] == [span.name for span in (first, second, run)]
    assert {run_id} == {span.trace_id for span in (first, second, run)}
    assert {run.span_id} == {first.parent_span_id, second.parent_span_id}
    assert run.parent_span_id is None
    assert (
        run.start_time_unix_nano
        <= first.start_time_unix_nano
        <= first.end_time_unix_nano
        <= second.start_time_unix_nano
    )
    async with opened(broker_settings) as untraced, echo(store, "traced.echo"):
        await ended(store, await start(store, chain("traced", 2)))
        await all_counted(untraced, "traced", 1)
        assert not untraced.store.telemetry.spans


async def test_a_run_that_a_trigger_starts_is_counted_once(store: Store) -> None:
    await register(store, chain("fired", 1))
    trigger = parse_trigger({"name": "t", "workflow": "fired", "subject": {"subject": "orders.*"}})
    starter, run_id = Starter(store), new_run_id()
    for _ in range(2):
        await starter.start(trigger, run_id, Raw(b"1"), run_operations.now())
    assert {("subject",): 1} == store.meters.counter("penstock_trigger_fires_total")
