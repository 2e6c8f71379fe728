"""Maps in a real service: elements over the broker, outputs put together from the history."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.outputs import output_of
from penstock.actors.runs.shard import Shard
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import KIB
from penstock.config.settings import BrokerSettings
from penstock.engine.run.state import RunStatus
from tests.support.waiting import until_true
from tests.support.world import Echo, echo, ended, start

BIG = "x" * 100 * KIB


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


def mapped(**config: object) -> dict[str, object]:
    step = {"id": "m", "type": "map", "task": "each", "config": config}
    return {"name": "mapped", "steps": [step, {"id": "after", "task": "after", "depends_on": ["m"]}]}


class Received:
    """Answers a task with its input, which it keeps."""

    def __init__(self) -> None:
        self.inputs: list[object] = []

    async def __call__(self, worker: Echo, task: TaskPayload) -> None:
        self.inputs.append(orjson.loads(bytes(task.input)))
        await worker.complete(task, bytes(task.input))


class Doubled:
    """Answers a task with twice its input, and keeps the numbers of the elements."""

    def __init__(self) -> None:
        self.items: list[int | None] = []

    async def __call__(self, worker: Echo, task: TaskPayload) -> None:
        self.items.append(task.item)
        await worker.complete(task, orjson.dumps(orjson.loads(bytes(task.input)) * 2))


@pytest.mark.parametrize("elements", [0, 1, 100])
async def test_the_outputs_of_the_elements_reach_the_next_step(store: Store, shard: Shard, elements: int) -> None:
    async with echo(store, "each", each := Doubled()), echo(store, "after", after := Received()):
        run_id = await start(store, mapped(), orjson.dumps(list(range(elements))))
        run = await ended(store, run_id)

    assert run.status is RunStatus.COMPLETED
    assert after.inputs[0] == [2 * n for n in range(elements)]
    assert sorted(each.items) == list(range(elements))


async def test_large_outputs_are_put_together_from_the_history(store: Store, shard: Shard) -> None:
    async with echo(store, "each", Doubled()), echo(store, "after", after := Received()):
        run_id = await start(store, mapped(max_concurrency=2), orjson.dumps([BIG] * 4))
        run = await ended(store, run_id)

    assert run.status is RunStatus.COMPLETED, run.error
    assert after.inputs[0] == [BIG * 2] * 4
    assert orjson.loads(bytes(await output_of(store, run, "m"))) == [BIG * 2] * 4


async def test_a_new_owner_goes_on_with_the_elements(store: Store, broker_settings: BrokerSettings) -> None:
    async with echo(store, "each", Doubled()) as worker, echo(store, "after", after := Received()):
        async with open_store(broker_settings, "first") as own, open_shard(own, new_member("shard")):
            run_id = await start(store, mapped(max_concurrency=3), orjson.dumps(list(range(60))))
            await until_true(lambda: len(worker.seen) > 20)
        async with open_store(broker_settings, "second") as own, open_shard(own, new_member("shard")):
            run = await ended(store, run_id, 60)

    assert run.status is RunStatus.COMPLETED
    assert after.inputs[0] == [2 * n for n in range(60)]
