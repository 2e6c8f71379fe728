"""The log of an older engine under today's service: runs that had ended are shown as they were, and those that had not
go on to the end that they had then. The histories are those of tests/properties/golden, of every version."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from penstock.broker.store import Store
from penstock.client import AsyncClient
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import NotFound
from penstock.engine.run.events import WorkflowStarted, decode
from penstock.engine.run.state import from_snapshot
from penstock.engine.validation import parse
from penstock.worker import Worker
from tests.e2e.parts import Parts
from tests.properties.recorded import FOLDER, History, Stored, histories, read
from tests.properties.recording import Script
from tests.support.service import PENSTOCK
from tests.support.waiting import until
from tests.worker.task_queue import new_run_id

VERSIONS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
UNFINISHED = ("conditions", "repeated")  # between them conditions, `with`, a map, a skipped step
WRITTEN_BY_HAND = "golden"  # the digest of those that no service recorded
Statuses = dict[str, str]
pytestmark = [pytest.mark.timeout(180), pytest.mark.parametrize("version", VERSIONS)]


def started(history: History) -> WorkflowStarted | None:
    """The first event of a history that a service has recorded."""
    first = decode(bytes(history.records[0].event))
    return first if isinstance(first, WorkflowStarted) and first.payload.digest != WRITTEN_BY_HAND else None


def recorded(version: str) -> dict[str, History]:
    """By name."""
    found = {path.stem: read(path) for path in histories() if path.parent.name == version}
    return {name: history for name, history in found.items() if started(history)}


def statuses(history: History) -> Statuses:
    run = from_snapshot(bytes(history.snapshot))
    return {"run": run.status.value} | {name: step.status.value for name, step in run.steps.items()}


async def put(store: Store, history: History, records: Sequence[Stored], run_id: str = "") -> str:
    """Store the history as it is on the wire, and its definition; returns the run's id, which `run_id` replaces."""
    first = started(history)
    assert first is not None
    run_id = run_id or first.run_id
    assert first.payload.digest == await store.definitions.register(parse(history.definition))
    for number, stored in enumerate(records):
        body = bytes(stored.event).replace(first.run_id.encode(), run_id.encode())
        answer = await store.broker.request(f"history.{run_id}", body, 10, {"Nats-Msg-Id": f"{run_id}/{number}"})
        assert "error" not in orjson.loads(answer.data), answer.data
    return run_id


@asynccontextmanager
async def service(settings: BrokerSettings, directory: Path) -> AsyncIterator[AsyncClient]:
    """An engine and a front end on the log, for the time of the block."""
    parts = Parts(directory, {"SERVICE_BROKER_URL": settings.url or ""})
    try:
        parts.start("engine", [PENSTOCK, "engine"])
        parts.start("api", [PENSTOCK, "api"])
        parts.await_ready()
        async with AsyncClient(parts.url) as client:
            yield client
    finally:
        parts.stop()


async def shown(client: AsyncClient, run_id: str) -> Statuses:
    """As the API shows it; nothing while it does not know the run."""
    try:
        run = await client.get_run(run_id)
    except NotFound:
        return {}
    return {"run": str(run.status)} | {name: str(step.status) for name, step in run.steps.items()}


async def test_runs_that_had_ended_are_shown_as_they_were(
    version: str, store: Store, broker_settings: BrokerSettings, tmp_path: Path
) -> None:
    found = {name: history for name, history in recorded(version).items() if statuses(history)["run"] != "running"}
    assert len(found) >= 20
    ids = {name: await put(store, history, history.records) for name, history in found.items()}
    async with service(broker_settings, tmp_path) as client:
        for name, history in found.items():
            assert statuses(history).items() <= (await shown(client, ids[name])).items(), name


async def test_runs_that_had_not_ended_go_on_to_the_end_that_they_had(
    version: str, store: Store, broker_settings: BrokerSettings, tmp_path: Path
) -> None:
    waiting: dict[str, tuple[str, Statuses]] = {}
    for name in UNFINISHED:
        history = recorded(version)[name]
        kinds = [orjson.loads(bytes(stored.event))["type"] for stored in history.records]
        begun = history.records[: kinds.index("step.completed") + 1]
        waiting[name] = await put(store, history, begun, new_run_id()), statuses(history)
    script = Script()
    worker = Worker(broker_url=broker_settings.url or "", worker_id="of-today")
    worker.task("DO")(script.do)
    worker.task("PLAN")(script.plan)
    async with service(broker_settings, tmp_path) as client:
        for run_id, expected in waiting.values():
            assert "running" == (await shown(client, run_id))["run"] != expected["run"]
        async with worker.running():
            for name, (run_id, expected) in waiting.items():

                async def over(run_id: str = run_id) -> bool:
                    return (await client.get_run(run_id)).ended

                await until(over)
                assert expected.items() <= (await shown(client, run_id)).items(), name
