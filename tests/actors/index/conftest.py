"""A run index of each test's own, and a workflow, because the tests of a module share one log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from uuid_utils import uuid7

from penstock.actors.index.file import index_path
from penstock.actors.index.follower import follow
from penstock.actors.index.run_index import RunIndex
from penstock.actors.runs.loading import load_many
from penstock.broker.store import Store
from tests.support.run_index import (
    running,
)


@pytest.fixture
def path(data_dir: Path) -> Path:
    return index_path(data_dir)


@pytest.fixture
def index(path: Path) -> Iterator[RunIndex]:
    opened = RunIndex(path)
    yield opened
    opened.close()


@pytest.fixture
async def followed(store: Store, path: Path) -> AsyncIterator[None]:
    async with running(follow(store, path, load_many)):
        yield


@pytest.fixture
def workflow() -> str:
    """A name of the test's own: the module's tests share one log."""
    return f"wf-{uuid7().hex}"
