"""The limits of an older service under today's: what it had stored of runs that hold and wait is read, the same runs
hold and wait, and all of them come to their end in the same order. recorded_limits.py says how that was recorded."""

from __future__ import annotations

from pathlib import Path

import msgspec
import orjson
import pytest

from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings
from penstock.engine.validation import parse
from penstock.worker import Context, Worker
from tests.e2e.recorded_limits import LIMITS, TASK, Message, Recording, shown
from tests.e2e.recorded_workers import FOLDER
from tests.e2e.test_older_log import service
from tests.support.waiting import until

VERSIONS = sorted(path.name for path in FOLDER.iterdir())
pytestmark = [pytest.mark.timeout(180), pytest.mark.parametrize("version", VERSIONS)]


async def put(store: Store, messages: list[Message]) -> None:
    """Store them as they were, in their order."""
    for number, one in enumerate(messages):
        headers = {"Nats-Msg-Id": f"{one.subject}/{number}"}
        answer = await store.broker.request(one.subject, one.body.encode(), 10, headers)
        assert "error" not in orjson.loads(answer.data), answer.data


def of_runs(messages: list[Message]) -> list[Message]:
    """The events of runs, under the subjects by which they are sent."""
    return [Message(f"history.{one.subject.rpartition('.')[2]}", one.body) for one in messages]


async def test_who_held_holds_and_who_waited_is_served_in_turn(
    version: str, store: Store, broker_settings: BrokerSettings, tmp_path: Path
) -> None:
    recording = msgspec.json.decode((FOLDER / version / "limits.json").read_bytes(), type=Recording)
    assert len(LIMITS) == len(recording.shown)
    for definition in recording.definitions:
        await store.definitions.register(parse(definition))
    await put(store, of_runs(recording.history))
    await store.limit_log.make()
    await put(store, recording.limits)
    begun: list[str] = []
    worker = Worker(broker_url=broker_settings.url or "", worker_id="of-today", max_tasks=len(LIMITS))

    @worker.task(TASK)
    async def carry_out(_: object, ctx: Context) -> None:
        begun.append(ctx.run_id)

    async with service(broker_settings, tmp_path) as client:

        async def as_recorded() -> bool:
            return await shown(client) == recording.shown

        await until(as_recorded)
        async with worker.running():

            async def all_ended() -> bool:
                return all([(await client.get_run(run_id)).ended for run_id in recording.run_ids])

            await until(all_ended)
        assert {"completed"} == {(await client.get_run(run_id)).status for run_id in recording.run_ids}
    assert sorted(begun) == sorted(recording.run_ids)
    for one in recording.shown:
        served = [*one.holders, *one.waiting]
        assert served == [run_id for run_id in begun if run_id in served], one.scope
