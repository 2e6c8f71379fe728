"""The front end over a real broker: in this process for most tests, under gunicorn for what depends on the server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from uuid import uuid4

import httpx2
import pytest
from falcon.testing import ASGIConductor

from penstock.actors.index import freshness
from penstock.actors.index.file import index_path
from penstock.actors.index.follower import follow
from penstock.actors.runs.loading import load_many
from penstock.broker.store import Store
from penstock.config.settings import Address, BrokerSettings, HttpSettings, Settings, to_environ
from penstock.engine.validation import parse
from penstock.http.app import create_app
from tests.http.bridge import TOKEN
from tests.http.bridge import client as bridge_client
from tests.support.conductor import Conductor
from tests.support.frontends import FrontEnd, front_ends
from tests.support.service import free_port

INDEX_S_MAX = 60.0
ONE_STEP = {"name": "one", "steps": [{"id": "a", "task": "work"}]}
TWO_STEPS = {"name": "two", "steps": [{"id": "a", "task": "work"}, {"id": "b", "task": "work", "depends_on": ["a"]}]}
TYPED = {
    "name": "typed",
    "steps": [{"id": "a", "task": "work"}],
    "input_schema": {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    },
}


@pytest.fixture
async def definitions(store: Store) -> None:
    for document in (ONE_STEP, TWO_STEPS, TYPED):
        await store.definitions.register(parse(document))


@pytest.fixture
async def http(broker_settings: BrokerSettings, definitions: None) -> AsyncIterator[ASGIConductor]:
    """The application, started."""
    async with Conductor(create_app(Settings(broker=broker_settings))) as conductor:
        yield conductor


@pytest.fixture
async def index(store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The run index is being followed. Answers wait until it is complete, also on a busy machine."""
    monkeypatch.setattr(freshness, "NAMED_S_MAX", INDEX_S_MAX)
    monkeypatch.setattr(freshness, "OTHERS_S_MAX", INDEX_S_MAX)
    following = asyncio.create_task(follow(store, index_path(broker_settings.data_dir), load_many))
    yield
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following


@pytest.fixture(scope="module")
def served(broker_settings: BrokerSettings) -> Iterator[str]:
    """The address of the application under gunicorn; its broker is the module's."""
    listen = Address("127.0.0.1", free_port())
    settings = Settings(broker=broker_settings, http=HttpSettings(listen=listen, workers=1))
    command = [
        sys.executable,
        "-m",
        "gunicorn",
        "-c",
        "python:penstock.config.gunicorn",
        "penstock.http.app:application",
    ]
    server = subprocess.Popen(command, env={**os.environ, **to_environ(settings)})
    try:
        yield _answering(f"http://{listen}")
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture
def client(served: str, definitions: None) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=served, trust_env=False, timeout=20) as opened:
        yield opened


def _answering(url: str) -> str:
    deadline = time.monotonic() + 20
    with httpx2.Client(base_url=url, trust_env=False) as client:
        while time.monotonic() < deadline:
            with suppress(httpx2.TransportError):
                client.get("/nowhere")
                return url
            time.sleep(0.02)
    raise AssertionError(f"no answer from {url}")


@pytest.fixture(scope="module")
def ends(broker_settings: BrokerSettings) -> Iterator[list[FrontEnd]]:
    """Two front-end processes with an open bridge."""
    with front_ends(broker_settings, 2, TOKEN) as started:
        yield started


@pytest.fixture
async def bridge(store: Store, ends: list[FrontEnd]) -> AsyncIterator[httpx2.AsyncClient]:
    """A worker's client of the first of the two."""
    async with bridge_client(ends[0].url) as opened:
        yield opened


@pytest.fixture
async def other(store: Store, ends: list[FrontEnd]) -> AsyncIterator[httpx2.AsyncClient]:
    """A worker's client of the second of the two."""
    async with bridge_client(ends[1].url) as opened:
        yield opened


@pytest.fixture
def task() -> str:
    """A task type of the test's own."""
    return f"t{uuid4().hex[:12]}"
