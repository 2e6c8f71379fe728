"""What is ordered and taken back in one turn of a run's actor leaves nothing in the queues."""

from __future__ import annotations

import asyncio

from penstock.actors.membership import new_member
from penstock.actors.ownership import open_shard
from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.events import StepCompleted, WorkflowCancelled
from penstock.engine.state import RunStatus, from_snapshot
from tests.support.waiting import until
from tests.support.world import chain, start

RUNS = 50


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
