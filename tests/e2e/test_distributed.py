"""The service in parts over one plain broker that wants credentials: it works, and says aloud when they are wrong."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from tests.e2e.parts import Parts, all_completed, define, in_the_middle, parts
from tests.support.jwt_operator import Operator
from tests.support.server import Server, server
from tests.support.service import PENSTOCK, clean_environ
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(90)

RUNS = 200
TASK = "distributed.echo"
PASSWORD = "hunter2hunter2"
MISTAKE = "wr0ngwr0ngwr0ng"
AUTHORIZATION = f'authorization {{ user: "ada", password: "{PASSWORD}" }}'
WORKER = [sys.executable, "-m", "tests.support.echo_worker", TASK]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Server]:
    with server(tmp_path, AUTHORIZATION) as one:
        await until_true(lambda: one.listens)
        yield one


@pytest.fixture
def running(broker: Server, tmp_path: Path) -> Iterator[Parts]:
    environ = {"SERVICE_BROKER_URL": broker.url, "SERVICE_BROKER_USER": "ada", "SERVICE_BROKER_PASSWORD": PASSWORD}
    with parts(tmp_path, environ) as started:
        yield started


@pytest.fixture
async def store(broker: Server) -> AsyncIterator[Store]:
    async with open_store(BrokerSettings(url=broker.url, user="ada", password=PASSWORD), "test") as opened:
        yield opened


async def test_parts_that_are_killed_or_lose_the_broker_lose_no_run(
    broker: Server, running: Parts, store: Store
) -> None:
    running.worker(TASK)
    define(running, "distributed", TASK)
    run_ids = await asyncio.to_thread(running.bulk, "distributed", RUNS)
    await in_the_middle(store, run_ids)
    running.kill("engine")
    running.start("engine", [PENSTOCK, "engine"])
    broker.kill()
    broker.start()
    await all_completed(store, run_ids)
    again = await asyncio.to_thread(running.bulk_patiently, "distributed", 20)
    await all_completed(store, again)
    assert running.alive()


@pytest.mark.parametrize(
    "command", [[PENSTOCK, "serve"], [PENSTOCK, "engine"], [PENSTOCK, "api"], WORKER], ids=lambda c: Path(c[-1]).name
)
@pytest.mark.parametrize("kind", ["password", "credentials file", "nothing"])
async def test_wrong_credentials_end_the_start_with_their_cause(
    broker: Server, tmp_path: Path, command: list[str], kind: str
) -> None:
    stranger = Operator().credentials(tmp_path / "stranger.creds")
    wrong = {
        "password": {"SERVICE_BROKER_USER": "ada", "SERVICE_BROKER_PASSWORD": MISTAKE},
        "credentials file": {"SERVICE_BROKER_CREDENTIALS": str(stranger)},
        "nothing": {},
    }
    environ = {
        **clean_environ(),
        "SERVICE_BROKER_URL": broker.url,
        "SERVICE_DATA_DIR": str(tmp_path / "data"),
        **wrong[kind],
    }
    done = await asyncio.to_thread(
        subprocess.run, command, env=environ, capture_output=True, text=True, timeout=20, check=False
    )
    assert 0 != done.returncode
    assert f"Error: the broker at {broker.url} refuses our credentials: authorization violation" in done.stderr
    assert "Traceback" not in done.stderr
    assert MISTAKE not in done.stderr + done.stdout


async def test_a_front_end_names_the_cause_in_its_health(broker: Server, tmp_path: Path) -> None:
    """Plain gunicorn makes no streams at its start: it serves, and tries again."""
    started = Parts(tmp_path, {"SERVICE_BROKER_URL": broker.url})
    gunicorn = [
        sys.executable,
        "-m",
        "gunicorn",
        "-c",
        "python:penstock.config.gunicorn",
        "penstock.http.app:application",
    ]
    started.start("http", gunicorn)
    try:
        text = await asyncio.to_thread(started.unhealthy)
    finally:
        started.stop()
    assert "refuses our credentials: authorization violation" in text
