"""Recordings from a real service: `python -m tests.properties.recording [NAME…]` runs scenarios.py, and writes into
the folder of the version that is worked on what is not there yet."""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from msgspec import UNSET, Raw

from penstock.broker.store import Store, open_store
from penstock.client import AsyncClient
from penstock.config.settings import BrokerSettings
from penstock.engine.run.state import StepStatus
from penstock.worker import Context, NonRetriable, Pause, Worker
from tests.properties.recorded import FOLDER, History, Stored, current, record, written
from tests.properties.scenario import Scenario
from tests.properties.scenarios import SCENARIOS
from tests.support.service import Service
from tests.support.waiting import until
from tests.support.web_server import Asked, answer, web_server

ROOT = str(Path(__file__).parents[2])
HERE = re.compile(re.escape(ROOT.encode()) + rb"(/build/[^/]+)?")
PLACE = b"/opt/penstock"  # of whatever was in the folder of this repository


class Script:
    """The worker's functions. `failures` counts by key."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()

    async def do(self, given: Any, ctx: Context) -> Any:
        wanted = given if isinstance(given, dict) else {}
        key = wanted.get("key", ctx.step_id)
        if self.failures[key] < wanted.get("fails", 0):
            self.failures[key] += 1
            raise (NonRetriable if wanted.get("hopeless") else RuntimeError)(f"{key} fails")
        if ctx.deliveries <= wanted.get("pauses", 0):
            raise Pause(0.05)
        return wanted.get("gives", given)

    async def plan(self, given: Any, ctx: Context) -> Any:
        return given[ctx.step_id][ctx.attempt - 1]


class Recorder:
    """Owned by `main`: one service, one worker, one scenario after the other."""

    def __init__(self, client: AsyncClient, store: Store, script: Script) -> None:
        self._client, self._store, self._script = client, store, script
        self._definitions: dict[str, dict[str, Any]] = {}

    async def record(self, name: str, scenario: Scenario) -> list[str]:
        """Run the scenario, and write what is not there yet; returns the names of the files."""
        self._script.failures.clear()
        self._definitions = {one["name"]: _without_nulls(one) for one in (*scenario.others, scenario.definition)}
        for definition in self._definitions.values():
            await self._client.register(orjson.dumps(definition))
        await self._send(scenario.early)
        run_id = await self._start(scenario)
        await self._meanwhile(run_id, scenario)
        files = [(name, scenario.about, run_id)]
        for field, other, about in scenario.runs:
            files.append((other, about, await until(lambda field=field: self._other(run_id, field))))
        return [name for name, about, found in files if await self._write(name, about, found)]

    async def _start(self, scenario: Scenario) -> str:
        name, given = scenario.definition["name"], orjson.dumps(scenario.given)
        if scenario.called:
            return (await self._client.call(name, given)).run_id
        return (await self._client.start(name, given, labels=scenario.labels)).run_id

    async def _meanwhile(self, run_id: str, scenario: Scenario) -> None:
        if scenario.events:
            await until(lambda: self._waits(run_id))
            if scenario.paused:
                await self._client.pause(run_id)
            await self._send(scenario.events)
        if scenario.paused:
            await until(lambda: self._queued(run_id))
            await self._client.resume(run_id)
        if scenario.cancelled:
            await until(lambda: self._running(run_id, scenario.cancelled))
            await self._client.cancel(run_id, "enough")
        await until(lambda: self._ended(run_id))
        if scenario.resumed:
            await self._client.retry(run_id)
            await until(lambda: self._ended(run_id))
        if scenario.by_hand is not None:
            step_id, output = scenario.by_hand
            await self._client.skip_step(run_id, step_id, orjson.dumps(output))
            await until(lambda: self._ended(run_id))
        if scenario.rerun_from is not None:
            await self._client.rerun(run_id, scenario.rerun_from)

    async def _send(self, events: tuple[tuple[str, object], ...]) -> None:
        for name, body in events:
            await self._client.send_event(name, orjson.dumps(body))

    async def _waits(self, run_id: str) -> bool:
        """Whether a step of the run waits for an event."""
        steps = (await self._client.get_run(run_id)).steps.values()
        return any(step.waits_for is not UNSET for step in steps)

    async def _queued(self, run_id: str) -> bool:
        found = (await self._client.get_run(run_id)).steps.values()
        return any(step.status == StepStatus.QUEUED for step in found)

    async def _running(self, run_id: str, steps: int) -> bool:
        found = (await self._client.get_run(run_id)).steps.values()
        return sum(step.status == StepStatus.RUNNING for step in found) >= steps

    async def _ended(self, run_id: str) -> bool:
        return (await self._client.get_run(run_id)).ended

    async def _other(self, run_id: str, field: str) -> str | None:
        """The run, ended, that this one has started, as this field of its start says."""
        async for run in self._client.runs():
            stored = await self._store.history.read(run.run_id)
            started = orjson.loads(stored[0].data)["payload"] if stored else {}
            by = started.get(field)
            if run.ended and run_id == (by["run_id"] if isinstance(by, dict) else by):
                return run.run_id
        return None

    async def _write(self, name: str, about: str, run_id: str) -> bool:
        path = FOLDER / current() / f"{name}.json"
        if path.exists():
            return False
        stored = await self._store.history.read(run_id)
        records = [Stored(one.seq, one.at, Raw(HERE.sub(PLACE, one.data or b""))) for one in stored]
        workflow = orjson.loads(bytes(records[0].event))["payload"]["workflow"]
        path.write_bytes(written(History(about, self._definitions[workflow], records)))
        return record(path)


def _without_nulls(definition: dict[str, Any]) -> dict[str, Any]:
    steps = [{key: value for key, value in step.items() if value is not None} for step in definition["steps"]]
    return {**definition, "steps": steps}


@asynccontextmanager
async def recorder(directory: Path) -> AsyncIterator[Recorder]:
    script = Script()
    settings = {"shards": 1, "http_workers": 1, "builtin_workers": "http", "http_allow": "127.0.0.1"}
    with Service(directory / "service", **settings) as service:
        worker = Worker(broker_url=service.broker_url, worker_id="w1")
        worker.task("DO")(script.do)
        worker.task("PLAN")(script.plan)
        broker = BrokerSettings(url=service.broker_url)
        async with worker.running(), AsyncClient(service.url) as client, open_store(broker, "recording") as store:
            yield Recorder(client, store, script)


async def main(names: list[str]) -> None:
    answers = [answer(503), answer(200, b'{"total": 3}', content_type="application/json")]

    def busy(_: Asked) -> bytes:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    with TemporaryDirectory() as directory:
        async with web_server(busy) as server, recorder(Path(directory)) as one:
            for name in names or SCENARIOS:
                scenario = SCENARIOS[name]
                if scenario.given == {"url": "URL"}:
                    scenario = scenario._replace(given={"url": server.url()})
                print(name, *await one.record(name, scenario))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
