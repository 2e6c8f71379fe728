"""What is ordered and taken back in one turn of a run's actor leaves nothing in the queues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.settings import BrokerSettings
from penstock.engine.run.event_payloads import TimerRef
from penstock.engine.run.events import StepCompleted, TimerFired, WorkflowCancelled
from penstock.engine.run.state import RunStatus, from_snapshot
from tests.support.own_broker import OwnBroker, own_broker
from tests.support.waiting import until, until_true
from tests.support.world import chain, echo, ended, start

RUNS = 50


@pytest.fixture
def unforgiving(tmp_path: Path) -> Iterator[OwnBroker]:
    """A broker of the test's own."""
    with own_broker(tmp_path) as broker:
        yield broker


async def test_a_removal_that_the_broker_refuses_is_tried_again_and_fails_no_run(unforgiving: OwnBroker) -> None:
    async with open_store(unforgiving.settings, "test") as store:
        await provision(store.broker, unforgiving.settings)
        async with open_store(unforgiving.settings, "shard") as own, open_shard(own, new_member("shard")):
            async with store.sticky_tasks.consume("withheld.echo", "w1", lambda _: None, batch=1, room=lambda: 0):
                run_id = await start(store, {**chain("withheld", 2), "sticky": "soft"})
                await store.history.send(StepCompleted(run_id=run_id, step_id="s0", worker_id="w1"))
                await until(lambda: store.reader.one(names.STICKY, names.sticky_subject("withheld.echo", "w1", run_id)))
                config = (await store.broker.api(f"STREAM.INFO.{names.STICKY}"))["config"]
                await store.broker.api(f"STREAM.UPDATE.{names.STICKY}", {**config, "sealed": True})
                with capture_logs() as logs:
                    await store.history.send(
                        TimerFired(run_id=run_id, payload=TimerRef(timer="sticky.s1", step_id="s1"))
                    )
                    await until_true(lambda: any(line["event"] == "run_waits_for_broker" for line in logs))
            await store.broker.api(f"STREAM.DELETE.{names.STICKY}")
            await provision(store.broker, unforgiving.settings)
            async with echo(store, "withheld.echo"):
                run = await ended(store, run_id)
    assert (RunStatus.COMPLETED, None) == (run.status, run.error)


async def test_a_step_that_becomes_ready_in_the_turn_that_cancels_its_run_leaves_no_task(
    store: Store, broker_settings: BrokerSettings
) -> None:
    """As after a pause of the shard, which then finds both events in the mailbox."""

    async def queued() -> bool:
        return len(await store.reader.subject(names.TASKS, "task.>")) == RUNS

    async def cancelled() -> bool:
        entries = await store.runs.get_many(run_ids)
        return [from_snapshot(entry.value).status for entry in entries.values()] == [RunStatus.CANCELLED] * RUNS

    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")):
        run_ids = [await start(store, chain("brief")) for _ in range(RUNS)]
        await until(queued)
        completed = [StepCompleted(run_id=run_id, step_id="s0", attempt_number=1) for run_id in run_ids]
        both = [event for first in completed for event in (first, WorkflowCancelled(run_id=first.run_id))]
        await asyncio.gather(*map(store.history.send, both))
        await until(cancelled)

    assert [] == [one.subject for one in await store.reader.subject(names.TASKS, "task.>")]
