"""Sleeps in a real service: until their time, and not longer than the history is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.run.state import RunStatus, StepStatus
from penstock.engine.times import instant
from tests.support.world import echo, ended, start

AGE_S_MAX = 2 * 86_400.0
SLEEPER = {
    "name": "sleeper",
    "steps": [
        {"id": "nap", "type": "sleep", "config": {"duration": "${{ input }}"}},
        {"id": "after", "task": "after", "depends_on": ["nap"]},
    ],
}


@pytest.fixture(autouse=True)
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[None]:
    """One whose history is kept for two days."""
    settings = replace(broker_settings, history_max_age=AGE_S_MAX)
    async with open_store(settings, "shard") as own, open_shard(own, new_member("shard")):
        yield


async def test_the_next_step_begins_when_the_time_is_over(store: Store) -> None:
    async with echo(store, "after"):
        run = await ended(store, await start(store, SLEEPER, b'"300ms"'))

    nap, after = run.steps["nap"], run.steps["after"]
    assert (run.status, nap.status) == (RunStatus.COMPLETED, StepStatus.COMPLETED)
    assert nap.started_at is not None
    assert after.started_at is not None
    assert instant(after.started_at) - instant(nap.started_at) >= 0.3


async def test_a_sleep_that_outlasts_the_history_fails_the_run(store: Store) -> None:
    run = await ended(store, await start(store, SLEEPER, b'"49h"'))

    assert (run.status, run.steps["nap"].attempts) == (RunStatus.FAILED, 1)
    assert "which is longer than history_max_age (48h) keeps the run's events" in (run.steps["nap"].error or "")
