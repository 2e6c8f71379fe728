"""A worker for each test, and a task type of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from penstock.config.settings import BrokerSettings
from penstock.worker import Worker

NewWorker = Callable[..., Worker]


@pytest.fixture
def task() -> str:
    return f"t{uuid4().hex[:12]}"


@pytest.fixture
def broker_url(broker_settings: BrokerSettings) -> str:
    assert broker_settings.url is not None
    return broker_settings.url


@pytest.fixture
def new_worker(broker_settings: BrokerSettings) -> NewWorker:
    def make(**options: Any) -> Worker:
        return Worker(broker_url=broker_settings.url, **{"grace_s": 0.2, **options})

    return make


@pytest.fixture
def worker(new_worker: NewWorker) -> Worker:
    return new_worker()
