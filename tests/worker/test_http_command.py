"""`penstock worker http` as a process: it is told everything by settings, and may be killed at any time."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings
from penstock.engine.definition.http_requests import TASK
from tests.support.service import PENSTOCK, clean_environ
from tests.support.web_server import answer, web_server
from tests.worker.task_queue import answer as answered
from tests.worker.task_queue import dispatch, durable, output_of


@asynccontextmanager
async def http_worker(settings: BrokerSettings, secrets: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    arguments = ("--http-allow", "127.0.0.0/8", "--secrets-dir", str(secrets), "--grace", "0.2")
    environ = {**clean_environ(), "SERVICE_BROKER_URL": settings.url or "", "HTTP_PROXY": "http://127.0.0.1:9"}
    process = await asyncio.create_subprocess_exec(PENSTOCK, "worker", "http", *arguments, env=environ)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def test_a_killed_worker_loses_no_request(store: Store, broker_settings: BrokerSettings, tmp_path: Path) -> None:
    (tmp_path / "KEY").write_text("geheim\n")
    await durable(store, TASK, 1.0)  # delivered again soon
    async with web_server(lambda _: None) as server:
        run_id = await dispatch(store, TASK, {"url": server.url(), "headers": {"X-Key": [{"secret": "KEY"}]}})
        async with http_worker(broker_settings, tmp_path) as first:
            await server.was_asked()
            first.kill()
            assert await first.wait() == -signal.SIGKILL
        server.script = lambda _: answer()
        async with http_worker(broker_settings, tmp_path) as second:
            output = output_of(await answered(store, run_id))
            second.terminate()
            assert await second.wait() == 0

    assert output["status"] == 200
    assert [f"{run_id}.s", "geheim"] * 2 == [
        asked.headers[name] for asked in server.asked for name in ("idempotency-key", "x-key")
    ]
