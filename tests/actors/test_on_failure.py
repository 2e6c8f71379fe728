"""Handlers of failed steps in a real service: their input is put together, and what they save leaves no dead letter."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest

from penstock.actors.control import run_operations
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.outputs import output_of
from penstock.actors.runs.shard import Shard
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import KIB
from penstock.config.settings import BrokerSettings
from penstock.engine.run.state import RunStatus
from tests.support.world import Echo, echo, ended, start

BIG = "x" * 100 * KIB


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


def definition(name: str, **step: object) -> dict[str, object]:
    first = {"id": "pay", "task": "pay", "on_failure": {"task": "refund"}, **step}
    return {"name": name, "steps": [first, {"id": "after", "task": "after", "depends_on": ["pay"]}]}


async def broken(worker: Echo, task: TaskPayload) -> None:
    await worker.fail(task, "no money", "non_retriable")


async def test_the_run_goes_on_with_the_output_of_the_handler(store: Store, shard: Shard) -> None:
    async with echo(store, "pay", broken), echo(store, "refund") as refunds, echo(store, "after"):
        run_id = await start(store, definition("recovers"), orjson.dumps({"big": BIG}))
        run = await ended(store, run_id)

    assert (run.status, run.steps["pay"].status) == (RunStatus.COMPLETED, "recovered")
    assert refunds.seen == {f"{run_id}.pay.on_failure": 1}
    given = orjson.loads(bytes(await output_of(store, run, "after")))
    assert given == {"step": "pay", "error": "no money", "input": {"big": BIG}, "attempts": 1}
    assert await store.dead_letters.last_seq() == 0


async def test_where_the_handler_fails_both_are_dead_letters_and_a_replay_removes_both(
    store: Store, shard: Shard
) -> None:
    async with echo(store, "pay", broken), echo(store, "refund", broken):
        run_id = await start(store, definition("lost"), b'{"n":1}')
        run = await ended(store, run_id)
        assert run.error == 'step "pay" failed: no money; its on_failure failed, too: no money'
        letters = [(await store.dead_letters.get(seq))[0] for seq in (1, 2)]

    assert {letter.step_id for letter in letters} == {"pay", "pay.on_failure"}
    async with echo(store, "pay"), echo(store, "after"):
        await run_operations.replay(store, run_id)
        run = await ended(store, run_id)
    assert (run.status, run.steps["pay"].status) == (RunStatus.COMPLETED, "completed")
    assert run.steps["pay.on_failure"].status == "cancelled"
