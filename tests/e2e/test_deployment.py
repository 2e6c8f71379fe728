"""The service in parts: an engine and a plain gunicorn over a broker that neither of them started."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from penstock.broker import names
from penstock.broker.embedded.server import EmbeddedBroker
from penstock.broker.store import Store, open_store
from penstock.client import Client
from penstock.config.limits import PARTITIONS
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import PenstockError
from tests.support.service import PENSTOCK, Service, free_port
from tests.support.waiting import until
from tests.support.world import chain

GUNICORN = [sys.executable, "-m", "gunicorn", "-c", "python:penstock.config.gunicorn", "penstock.http.app:application"]


@contextmanager
def running(arguments: list[str], environ: dict[str, str], directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SERVICE_")}
    with (directory / "part.log").open("ab") as log:
        process = subprocess.Popen(arguments, env={**clean, **environ}, cwd=directory, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


async def finished(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run, command, cwd=directory, capture_output=True, text=True, timeout=20, check=False
    )


async def ready(client: Client) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                return await asyncio.to_thread(client.ready)
            except PenstockError:
                await asyncio.sleep(0.05)


@pytest.fixture
def environ(embedded: EmbeddedBroker, tmp_path: Path) -> dict[str, str]:
    return {
        "SERVICE_BROKER_URL": embedded.url,
        "SERVICE_LISTEN": f"127.0.0.1:{free_port()}",
        "SERVICE_DATA_DIR": str(tmp_path),
        "SERVICE_CONFIG": "",
    }


async def test_engine_and_plain_gunicorn_and_worker_run_a_workflow(environ: dict[str, str], tmp_path: Path) -> None:
    worker = [sys.executable, "-m", "tests.support.echo_worker", "parts.echo"]
    with (
        running([PENSTOCK, "engine"], environ, tmp_path),
        running(GUNICORN, environ, tmp_path),
        running(worker, {**environ, "PYTHONPATH": str(Path.cwd())}, tmp_path),
        Client(f"http://{environ['SERVICE_LISTEN']}") as client,
    ):
        await ready(client)
        client.register(orjson.dumps(chain("parts")))
        run_id = client.start("parts", b'{"n":1}').run_id
        events = await asyncio.to_thread(lambda: [event.type for event in client.follow(run_id)])
        listed = await asyncio.to_thread(lambda: [run.run_id for run in client.runs(workflow="parts")])
    assert events[-1] == "workflow.completed"
    assert listed == [run_id]


async def shared_out(store: Store, *counts: int) -> None:
    """Return once so many shards own so many partitions each, in ascending order, and every partition is owned once."""

    async def is_so() -> bool:
        answers = await store.broker.ask_all(names.ENGINE_PING, lambda found: len(found) == len(counts), 0.3)
        owned = [orjson.loads(answer)["partitions"] for answer in answers]
        return sorted(map(len, owned)) == list(counts) and sorted(
            number for numbers in owned for number in numbers
        ) == list(range(PARTITIONS))

    await until(is_so)


async def test_a_second_engine_shares_the_partitions_with_the_first(environ: dict[str, str], tmp_path: Path) -> None:
    one = {**environ, "SERVICE_SHARDS": "1"}
    async with open_store(BrokerSettings(url=environ["SERVICE_BROKER_URL"]), "test") as store:
        with running([PENSTOCK, "engine"], one, tmp_path):
            await shared_out(store, PARTITIONS)
            with running([PENSTOCK, "engine"], one, tmp_path):
                await shared_out(store, PARTITIONS // 2, PARTITIONS // 2)
            await shared_out(store, PARTITIONS)


async def test_engine_without_a_broker_url_says_what_is_missing(tmp_path: Path) -> None:
    done = await asyncio.to_thread(
        subprocess.run, [PENSTOCK, "engine"], cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode != 0
    assert "broker_url is not set" in done.stderr
    assert "Traceback" not in done.stderr


async def test_shards_share_the_partitions_out(tmp_path: Path) -> None:
    with Service(tmp_path, shards=3) as service:
        async with open_store(BrokerSettings(url=service.broker_url), "test") as store:
            await shared_out(store, 10, 11, 11)
        pids = service.pids()
    assert len({pids[f"shard-{number}"] for number in range(3)}) == 3


async def test_serve_and_api_say_once_whom_their_control_plane_answers(tmp_path: Path) -> None:
    with Service(tmp_path, shards=1, http_workers=2) as service:
        lines = service.log_lines()
        environ = {
            "SERVICE_BROKER_URL": service.broker_url,
            "SERVICE_LISTEN": f"127.0.0.1:{free_port()}",
            "SERVICE_DATA_DIR": str(tmp_path / "api"),
            "SERVICE_HTTP_WORKERS": "2",
            "SERVICE_LOG_FORMAT": "json",
            "SERVICE_CONFIG": "",
        }
        with (
            running([PENSTOCK, "api", "--insecure"], environ, tmp_path),
            Client(f"http://{environ['SERVICE_LISTEN']}") as client,
        ):
            await ready(client)
            lines += [
                orjson.loads(line)
                for line in (tmp_path / "part.log").read_bytes().splitlines()
                if line.startswith(b"{")
            ]
    said = [(line["mode"], line["level"]) for line in lines if line["event"] == "control_plane"]
    assert [("protected", "info"), ("insecure", "warning")] == said


async def test_broker_port_in_use_is_a_clear_error(embedded: EmbeddedBroker, tmp_path: Path) -> None:
    command = [PENSTOCK, "serve", f"--broker-port={embedded.settings.port}", f"--data-dir={tmp_path / 'other'}"]
    done = await finished(command, tmp_path)
    assert done.returncode != 0
    assert f"port {embedded.settings.port}" in done.stderr
    assert "Traceback" not in done.stderr
