"""Shared fixtures: a real broker for each test module, and everything stored in it behind one connection."""

from __future__ import annotations

import functools
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpcore2
import msgspec
import pytest
import structlog

from penstock.broker.embedded.server import EmbeddedBroker
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.settings import BrokerSettings
from tests.support.service import free_port

# Tests start hundreds of services: without bytecode, each of their processes compiles the product again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell starts what runs in its background with this signal ignored, and so would be the processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

_configure = structlog.configure


@functools.wraps(_configure)
def _configure_uncached(**options: Any) -> None:
    """A logger that is kept at its first use would never be seen by a later test that looks at what is logged."""
    _configure(**{**options, "cache_logger_on_first_use": False})


structlog.configure = _configure_uncached

# Every client of tests makes a context for TLS, which reads all certificates in 20 ms. Hardly any uses it.
httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)


# Tests that take long come first: what is left at the end, when workers run out of tests, is short.
LONG = ("tests/scripts/test_chaos.py", "tests/e2e/", "tests/scripts/", "tests/simulation/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((at for at, path in enumerate(LONG) if item.nodeid.startswith(path)), len(LONG)))


def pytest_collection_finish() -> None:
    """What is loaded now stays: it is not looked at again by each collection of garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A nats-server of the module's own."""
    broker = EmbeddedBroker(BrokerSettings(port=free_port(), data_dir=str(tmp_path_factory.mktemp("broker"))))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def broker_settings(embedded: EmbeddedBroker) -> BrokerSettings:
    return msgspec.structs.replace(embedded.settings, url=embedded.url)


@pytest.fixture
async def store(broker_settings: BrokerSettings) -> AsyncIterator[Store]:
    """Streams and buckets made, and a connection to them."""
    async with open_store(broker_settings, "test") as opened:
        await provision(opened.broker, broker_settings)
        yield opened


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"
