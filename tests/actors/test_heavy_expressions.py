"""Expressions that may take long are evaluated outside the event loop of their shard."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.shard import Shard
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.settings import BrokerSettings
from penstock.engine.run.state import RunStatus, StepStatus
from tests.support.world import Echo, echo, ended, start

ROWS = [{"n": n, "text": "x" * 20} for n in range(9000)]
COUNT = "${{ size(input.rows.filter(row, row.n >= 4000)) }}"


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


def definition(step: dict[str, object]) -> dict[str, object]:
    return {"name": "heavy", "steps": [{"id": "count", "task": "count", **step}]}


async def run_of(store: Store, step: dict[str, object], value: object) -> tuple[RunStatus, list[object], str | None]:
    inputs: list[object] = []

    async def keep(worker: Echo, task: TaskPayload) -> None:
        inputs.append(orjson.loads(bytes(task.input)))
        await worker.complete(task, b"null")

    async with echo(store, "count", keep):
        run = await ended(store, await start(store, definition(step), orjson.dumps(value)))
    return run.status, inputs, run.steps["count"].error


async def test_a_large_input_is_read_in_a_process_of_its_own(store: Store, shard: Shard) -> None:
    found = await run_of(store, {"with": {"count": COUNT}}, {"rows": ROWS})

    assert found == (RunStatus.COMPLETED, [{"count": 5000}], None)
    assert shard.effects.evaluator.running


async def test_a_condition_on_a_large_input_skips_the_step(store: Store, shard: Shard) -> None:
    step = {"when": "input.rows.exists(row, row.n == 9000)"}
    async with echo(store, "count"):
        run = await ended(store, await start(store, definition(step), orjson.dumps({"rows": ROWS})))

    assert run.steps["count"].status is StepStatus.SKIPPED
    assert shard.effects.evaluator.running


async def test_a_failure_there_fails_the_step(store: Store, shard: Shard) -> None:
    status, inputs, error = await run_of(store, {"with": "${{ input.rows.map(row, row.none) }}"}, {"rows": ROWS})

    assert (status, inputs) == (RunStatus.FAILED, [])
    assert "none" in (error or "")


async def test_what_is_quick_starts_no_process(store: Store, shard: Shard) -> None:
    found = await run_of(store, {"with": {"count": "${{ size(input.rows) }}"}}, {"rows": ROWS[:3]})

    assert found == (RunStatus.COMPLETED, [{"count": 3}], None)
    assert not shard.effects.evaluator.running


async def test_the_elements_of_a_map_come_from_there(store: Store, shard: Shard) -> None:
    items = "${{ input.rows.filter(row, row.n < 3).map(row, row.n) }}"
    step = {"type": "map", "config": {"items": items}}
    status, inputs, _ = await run_of(store, step, {"rows": ROWS})

    assert (status, sorted(map(str, inputs))) == (RunStatus.COMPLETED, ["0", "1", "2"])
