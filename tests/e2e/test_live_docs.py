"""The examples of docs/logs.md do what they promise: the SDK, curl over the bridge, a plain client of the broker."""

from __future__ import annotations

import asyncio
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.client import AsyncClient
from penstock.worker import Worker
from tests.e2e.conftest import StartService
from tests.http.bridge import TOKEN, client, polled, resolve

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = (Path(__file__).parents[2] / "docs" / "logs.md").read_text()
WORKER, PLAIN_CLIENT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^\$ (curl .*?)\n\{\"status\"", PAGE, re.DOTALL | re.MULTILINE)

pytestmark = pytest.mark.timeout(120)


async def run_of(api: AsyncClient, task: str, value: bytes) -> str:
    await api.register(b'{"name": "shown", "steps": [{"id": "a", "task": "%b"}]}' % task.encode())
    return (await api.start("shown", value)).run_id


async def test_the_worker_of_the_page_logs_streams_and_shows_progress(
    start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start_service(shards=1, http_workers=1)
    monkeypatch.setenv("SERVICE_BROKER_URL", service.broker_url)
    names: dict[str, Any] = {}
    exec(compile(WORKER, "docs/logs.md", "exec"), names)
    worker = names["worker"]
    assert isinstance(worker, Worker)
    async with worker.running(), AsyncClient(service.url) as api:
        run_id = await run_of(api, "answer", b'"who is it"')
        assert ['"who"', '"is"', '"it"'] == [bytes(one.data).decode() async for one in api.chunks(run_id)]
        said = [(line.level, line.text) async for line in api.logs(run_id)]
    assert [("info", "asked"), ("warning", "no model was asked")] == said


async def test_the_commands_of_the_page_do_the_same_over_the_bridge(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=1, bridge_token=TOKEN)
    assert 3 == len(COMMANDS)
    async with AsyncClient(service.url) as api, client(service.url) as bridge:
        run_id = await run_of(api, "ask", b"1")
        task = await polled(bridge, "ask")
        for command in COMMANDS:
            said = command.replace("localhost:8080", service.url).replace("curl -s", "curl -sf")
            environ = {"TASK": task["task_id"], "TOKEN": TOKEN, "PATH": "/usr/bin:/bin:/usr/local/bin"}
            ran = await asyncio.create_subprocess_shell(said, env=environ, stdout=asyncio.subprocess.PIPE)
            assert (0, b'{"status":"ok"}') == (await ran.wait(), (await ran.communicate())[0])
        progress = (await api.get_run(run_id)).steps["a"].progress
        assert ("pages", 3, 10) == (progress.text, progress.done, progress.total)
        await resolve(bridge, task, "complete")
        assert ['"Hel"'] == [bytes(one.data).decode() async for one in api.chunks(run_id, step="a")]
        assert ["charged"] == [line.text async for line in api.logs(run_id)]


async def test_the_agent_of_the_examples_streams_its_tokens(
    start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start_service(shards=1, http_workers=1)
    monkeypatch.setenv("SERVICE_BROKER_URL", service.broker_url)
    names = runpy.run_path(str(EXAMPLES / "agent_worker.py"))
    names["agent"].__globals__["WORD_S"] = 0.0
    async with names["worker"].running(), AsyncClient(service.url) as api:
        await api.register((EXAMPLES / "agent.json").read_bytes())
        run_id = (await api.start("agent", b'"3 * 4 + 5"')).run_id
        said = [msgspec.json.decode(one.data) async for one in api.chunks(run_id, step="think")]
        output = msgspec.json.decode(await api.output(run_id, "think"))
    assert "I calculate 3 * 4 first.\nI calculate 12 + 5 first.\nThe answer is 17.\n" == "".join(said)
    assert len(said) > 10
    assert {"answer": "17", "steps": ["3 * 4 + 5 = 12 + 5", "12 + 5 = 17"]} == output


async def test_a_plain_client_of_the_broker_follows_and_writes(start_service: StartService, tmp_path: Path) -> None:
    service = start_service(shards=1, http_workers=1)
    script = tmp_path / "client.py"
    script.write_text(PLAIN_CLIENT)
    async with AsyncClient(service.url) as api:
        run_id = await run_of(api, "nobody", b"1")
        ran = await asyncio.create_subprocess_exec(
            sys.executable, str(script), service.broker_url, run_id, "a", stdout=asyncio.subprocess.PIPE
        )
        assert f"watch.log.{run_id}.a by NATS\n" == (await ran.communicate())[0].decode()
        assert ["by NATS"] == [line.text async for line in api.logs(run_id, step="a")]
