"""What the tests of shards share. The module of each has a fixture `shard`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from penstock.actors.runs.shard import Shard
from penstock.broker.nats.direct import Stored


@pytest.fixture
def read(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs whose logs the shard has read, from now on."""
    found, pages = list[str](), shard.store.history.pages

    def noted(run_id: str, *given: Any, **more: Any) -> AsyncGenerator[list[Stored]]:
        found.append(run_id)
        return pages(run_id, *given, **more)

    monkeypatch.setattr(shard.store.history, "pages", noted)
    return found
