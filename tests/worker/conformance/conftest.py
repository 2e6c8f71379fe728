"""A worker for each test, over both transports: the broker directly, and the bridge of a front end in a process of its
own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings
from penstock.worker import Worker
from tests.support.frontends import FrontEnd, front_ends
from tests.worker.conftest import NewWorker
from tests.worker.task_queue import (
    new_run_id,
)

TOKEN = "conformance"


@pytest.fixture(scope="module")
def end(broker_settings: BrokerSettings) -> Iterator[FrontEnd]:
    with front_ends(broker_settings, 1, TOKEN) as (started,):
        yield started


@pytest.fixture(params=["nats", "bridge"])
def new_worker(
    request: pytest.FixtureRequest, store: Store, broker_settings: BrokerSettings, end: FrontEnd
) -> NewWorker:
    def make(**options: Any) -> Worker:
        if request.param == "nats":
            return Worker(broker_url=broker_settings.url, **{"grace_s": 0.2, **options})
        return Worker(transport="bridge", url=end.url, bridge_token=TOKEN, **{"grace_s": 0.2, **options})

    return make


@pytest.fixture
def worker(new_worker: NewWorker) -> Worker:
    return new_worker(worker_id=f"w-{new_run_id()}")
