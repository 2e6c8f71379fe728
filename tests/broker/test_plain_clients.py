"""Plain NATS clients in Python and Node follow and replay a run as docs/history.md says, with the rights that it names
and no others."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.settings import BrokerSettings
from tests.support.server import Server, server
from tests.support.tools import NODE, NODE_FOLDER
from tests.support.waiting import until_true
from tests.worker.task_queue import new_run_id

ROOT = Path(__file__).parents[2]
TYPES = ["workflow.started", "step.started", "step.completed", "workflow.completed"]
Command = list[str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    (block,) = re.findall(
        r"```conf\n(authorization \{.*?\n\})\n```", (ROOT / "docs" / "history.md").read_text(), re.DOTALL
    )
    with server(tmp_path_factory.mktemp("broker"), block) as one:
        yield one


@pytest.fixture
async def store(broker: Server) -> AsyncIterator[Store]:
    settings = BrokerSettings(url=broker.url, user="penstock", password="change-me")
    await until_true(lambda: broker.listens)
    async with open_store(settings, "service") as opened:
        await provision(opened.broker, settings)
        yield opened


@pytest.fixture(params=["py", "mjs"])
def command(request: pytest.FixtureRequest) -> Command:
    example = ROOT / "examples" / f"follow_run.{request.param}"
    # Beside its packages, where Node looks for them.
    return [sys.executable, str(example)] if request.param == "py" else [NODE, shutil.copy(example, NODE_FOLDER)]


@asynccontextmanager
async def running(command: Command, broker: Server) -> AsyncIterator[asyncio.subprocess.Process]:
    url = broker.url.replace("//", "//reader:change-me-too@")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, "SERVICE_BROKER_URL": url}, stdout=pipe, stderr=pipe
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def publish(store: Store, run_id: str, types: list[str]) -> None:
    for kind in types:
        event = {"type": kind, "run_id": run_id, "timestamp": "2026-11-22T00:00:00Z"}
        await store.publisher.send(names.history_subject(run_id), orjson.dumps(event))


async def told(process: asyncio.subprocess.Process) -> list[str]:
    async with asyncio.timeout(30):
        output, errors = await process.communicate()
    assert 0 == process.returncode, errors.decode()
    return [line.split()[2] for line in output.decode().splitlines()]


async def test_a_plain_client_replays_a_run_and_follows_it_to_its_end(
    store: Store, broker: Server, command: Command
) -> None:
    run_id, other = new_run_id(), new_run_id()
    await publish(store, other, TYPES)
    await publish(store, run_id, TYPES[:2])

    async with running([*command, run_id], broker) as process:
        assert process.stdout
        async with asyncio.timeout(30):
            first = await process.stdout.readline()
        await publish(store, run_id, TYPES[2:])
        rest = await told(process)

    assert TYPES == [first.split()[2].decode(), *rest]


async def test_a_plain_client_follows_a_run_live_without_a_consumer(
    store: Store, broker: Server, command: Command
) -> None:
    run_id = new_run_id()
    await publish(store, run_id, TYPES[:2])

    async with running([*command, "--live", run_id], broker) as process:
        assert process.stderr
        async with asyncio.timeout(30):
            assert f"following {run_id}\n".encode() == await process.stderr.readline()
        await publish(store, run_id, TYPES[2:])
        seen = await told(process)

    assert TYPES[2:] == seen
