"""The whole service for a test: its own processes, ports and data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.service import Service


class StartService(Protocol):
    def __call__(self, **settings: object) -> Service: ...


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[StartService]:
    """Start a service with settings, as `start_service(shards=2, fsync="always")`. It is ready, and ends with the
    test."""
    with ExitStack() as stack:

        def start(**settings: object) -> Service:
            directory = tmp_path / f"service-{len(list(tmp_path.glob('service-*')))}"
            return stack.enter_context(Service(directory, **settings))

        yield start


@pytest.fixture
def service(start_service: StartService) -> Service:
    """A service with the default settings, one shard and one HTTP process."""
    return start_service(shards=1, http_workers=1)
