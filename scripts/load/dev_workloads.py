"""How soon saved code takes tasks with `penstock dev`. Sizes are in environment.py, targets in targets.py."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from penstock import AsyncClient

from .environment import Setup
from .figures import percentile
from .samples import Sample, Workload

FLOW = "loadtest-saved"
CODE = """\
from penstock import Workflow, task


@task
def version() -> int:
    return {version}


flow = Workflow("{flow}")
flow.step(version)
"""
READY, SERVING = re.compile(rb"its console: (http\S+)/console"), re.compile(rb"^serving ")
READY_S_MAX, STOP_S_MAX, SAVED_S_MAX = 60.0, 30.0, 30.0
CALLED_MS = 20_000


async def reload(setup: Setup) -> Sample:
    """A file is saved, again and again: until a run that is started afterwards has the answer of the new code."""
    took = list[float]()
    folder = setup.directory / "dev"
    folder.mkdir(exist_ok=True)
    app = folder / "app.py"
    _save(app, 0)
    async with _developing(app) as url, AsyncClient(url) as client:
        for version in range(1, setup.sizes.reloads + 1):
            begin = time.perf_counter()
            _save(app, version)
            async with asyncio.timeout(SAVED_S_MAX):
                while await _answer(client) != version:
                    pass
            took.append(time.perf_counter() - begin)
    return Sample({"dev-reload": percentile(sorted(took), 0.5) * 1000, "dev-reload-most": max(took) * 1000})


DEV_WORKLOADS: Mapping[str, Workload] = {"dev-reload": Workload(reload)}


def _save(app: Path, version: int) -> None:
    """As editors do: a new file takes the place of the old one."""
    written = app.with_suffix(".tmp")
    written.write_text(CODE.format(version=version, flow=FLOW))
    written.replace(app)


async def _answer(client: AsyncClient) -> int:
    """Of whichever code has the task."""
    called = await client.call(FLOW, b"null", timeout_ms=CALLED_MS)
    return msgspec.json.decode(called.body, type=int)


@asynccontextmanager
async def _developing(app: Path) -> AsyncIterator[str]:
    """The address of the service of `penstock dev`, once it serves the file."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SERVICE_")}
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("penstock")),
        "dev",
        str(app),
        env={**environ, "PYTHONUNBUFFERED": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    reading: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(READY_S_MAX):
            url = (await _line(process.stdout, READY))[1].decode()
            await _line(process.stdout, SERVING)
        reading = asyncio.create_task(_read_on(process.stdout))
        yield url
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(STOP_S_MAX):
                await process.wait()
        if reading is not None:
            await reading


async def _line(output: asyncio.StreamReader, pattern: re.Pattern[bytes]) -> re.Match[bytes]:
    """The next line that matches."""
    seen = list[bytes]()
    while line := await output.readline():
        seen.append(line)
        if found := pattern.search(line):
            return found
    raise RuntimeError(f"penstock dev has ended:\n{b''.join(seen).decode(errors='replace')}")


async def _read_on(output: asyncio.StreamReader) -> None:
    """So that the command never waits for a reader."""
    while await output.readline():
        pass
