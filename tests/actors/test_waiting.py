"""Waiting for the end of a run: no more is read than must be, and whatever came last, the answer comes at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.actors.control import watch
from penstock.actors.control.run_operations import now
from penstock.actors.control.watch import Watched
from penstock.actors.imports.reading import read
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.broker.streams.watch import QUIET_S, RunEvents
from penstock.config.process.background import start as background
from penstock.config.settings import BrokerSettings
from penstock.engine.run.event_payloads import SignalRef
from penstock.engine.run.events import SignalReceived
from penstock.engine.run.state import RunStatus
from tests.support.waiting import until
from tests.support.world import chain, echo, register, start


@pytest.fixture
async def shard(broker_settings: BrokerSettings) -> AsyncIterator[None]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")):
        yield


async def finished(store: Store, workflow: str) -> str:
    """A run whose end carries its state."""
    await register(store, chain(workflow, 2))
    async with echo(store, f"{workflow}.echo"):
        run_id = await start(store, chain(workflow, 2))

        async def is_over() -> bool:
            last = await store.history.last(run_id)
            return last is not None and names.owner_state(last.headers) is not None

        await until(is_over)
    return run_id


async def test_an_end_that_carries_the_state_is_all_that_is_read(
    store: Store, shard: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await finished(store, "waited")
    expected = await read(store, run_id)
    monkeypatch.delattr(RunEvents, "stored")
    watched = Watched(store, run_id)
    await watched.end()
    assert expected == watched.run
    assert RunStatus.COMPLETED is expected.status


async def test_an_end_that_comes_later_is_all_that_is_read(
    store: Store, shard: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(store, chain("awaited", 2))
    monkeypatch.delattr(RunEvents, "stored")
    monkeypatch.setattr(watch, "SOON_S", 20)  # the machine may be busy
    async with echo(store, "awaited.echo"):
        run_id = await start(store, chain("awaited", 2))
        watched = Watched(store, run_id)
        await watched.end()
    assert await read(store, run_id) == watched.run


async def test_who_waits_for_a_run_that_has_ended_before_its_last_event_does_not_wait_for_more(
    store: Store, shard: None
) -> None:
    run_id = await finished(store, "signalled")
    await store.history.append(SignalReceived(run_id=run_id, timestamp=now(), payload=SignalRef(name="late", size=1)))
    watched = Watched(store, run_id)
    waiting = background(watched.end(), name="waiting")
    async with asyncio.timeout(QUIET_S / 2):
        await waiting
    assert watched.run is not None
    assert RunStatus.COMPLETED is watched.run.status
