"""Waiting for the end of a run: no more is read than must be, and whatever came last, the answer comes at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from penstock.actors.control import run_operations, watch
from penstock.actors.control.run_operations import now
from penstock.actors.control.watch import Watched
from penstock.actors.imports.reading import read
from penstock.actors.maintenance.pruning import FORMAT
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs import loading
from penstock.broker import far_events, names
from penstock.broker.nats.direct import DirectReader, Stored
from penstock.broker.store import Store, open_store
from penstock.broker.streams.history import History
from penstock.broker.streams.watch import QUIET_S, RunEvents
from penstock.broker.worker_messages import TaskPayload
from penstock.config.process.background import start as background
from penstock.config.settings import BrokerSettings
from penstock.engine.run.event_payloads import SignalRef
from penstock.engine.run.events import SignalReceived, WorkflowRemoved
from penstock.engine.run.state import RunStatus, to_snapshot
from tests.support.waiting import until
from tests.support.world import Echo, chain, echo, register, start


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


async def test_of_a_run_whose_last_event_says_which_was_before_it_no_other_is_looked_for(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker searches all that was stored between two events for the second one. Nobody has the run here."""

    async def refuse(worker: Echo, task: TaskPayload) -> None:
        await worker.fail(task, "no", "non_retriable")

    async def none_known(*given: object) -> None:
        return None

    async def is_saved() -> bool:
        entry = await store.runs.get(run_id)
        return entry is not None and b'"finished_at"' in entry.value

    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")):
        await register(store, chain("tried-again", 2))
        async with echo(store, "tried-again.echo", refuse):
            run_id = await start(store, chain("tried-again", 2))
            await until(is_saved)
    await run_operations.replay(store, run_id)
    with monkeypatch.context() as patched:
        patched.setattr(loading, "_with_known", none_known)
        expected = await loading.load(store, run_id)
    monkeypatch.delattr(History, "pages")
    found = await loading.load(store, run_id)
    assert expected == found
    assert found.run is not None
    assert (RunStatus.RUNNING, 1) == (found.run.status, found.beyond)


@pytest.mark.parametrize("page_bytes", [1, 1 << 20])
@pytest.mark.parametrize("saved", [False, True])
async def test_an_event_that_comes_long_after_the_others_is_not_looked_for(
    store: Store, monkeypatch: pytest.MonkeyPatch, saved: bool, page_bytes: int
) -> None:
    """Nobody has the run here. Others' events lie in between."""

    async def signal(run_id: str, name: str) -> None:
        event = SignalReceived(run_id=run_id, timestamp=now(), payload=SignalRef(name=name, size=1))
        await store.history.append(event, message_id=f"{run_id}.{name}")

    async def searched(*given: object) -> AsyncGenerator[list[Stored]]:
        yield [Stored("", 0, 0.0, b"searched")]

    run_id = await start(store, chain("remembered", 1))
    await signal(run_id, "soon")
    before = await loading.load(store, run_id)
    assert before.run is not None
    if saved:
        await store.runs.put(run_id, to_snapshot(before.run), 0)
    other = await start(store, chain("remembered", 1))
    for number in range(4):
        await signal(other, f"other-{number}")
    await signal(run_id, "late")
    expected = await loading.load(store, run_id)
    monkeypatch.setattr(far_events, "FAR", 3)
    monkeypatch.setattr(far_events, "YOUNG_S", 0.0)
    monkeypatch.setattr(far_events, "PAGE_BYTES", page_bytes)
    monkeypatch.setattr(DirectReader, "pages", searched)
    found = await loading.load(store, run_id)
    assert expected == found
    assert found.beyond == (2 if saved else 3)  # a signal that nobody waits for leaves the state as it is


async def test_of_a_removed_run_only_its_end_and_the_removal_are_looked_for(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")):
        run_id = await finished(store, "taken-away")
    last = await store.history.last(run_id)
    assert last is not None
    assert await store.history.append_removal(WorkflowRemoved(run_id=run_id, timestamp=now(), v=FORMAT), last.seq)
    monkeypatch.delattr(History, "pages")
    found = await loading.load(store, run_id)
    assert (None, found.last_seq) == (found.run, found.removed)
    assert found.removed > last.seq


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
