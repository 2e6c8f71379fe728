"""Timers of a shard on a host whose clock is wrong: the broker's clock says when they are due, and it alone."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs import timers
from penstock.actors.runs.shared.broker_clock import BrokerClock
from penstock.actors.runs.timers import Timers
from penstock.broker import names
from penstock.broker.nats.direct import Stored
from penstock.broker.nats.headers import MSG_ID
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.run.commands import SetTimer
from penstock.engine.run.events import StepCompleted, TimerFired, WorkflowStarted, decode
from tests.support.clocks import set_clock
from tests.support.waiting import until, until_true
from tests.support.world import chain, ended, start

MINUTES_S = (600.0, -600.0)


@asynccontextmanager
async def at_work(settings: BrokerSettings) -> AsyncIterator[None]:
    async with open_store(settings, "shard") as own, open_shard(own, new_member("shard")):
        yield


async def one(store: Store, run_id: str, kind: type[Any]) -> Stored:
    """The only event of its kind in the run's history."""
    [found] = [stored for stored in await store.history.read(run_id) if isinstance(decode(stored.data), kind)]
    return found


def fired_by_the_shard(fired: Stored) -> bool:
    """What the broker fires out of a schedule carries no id."""
    return MSG_ID.encode() in fired.headers


@pytest.mark.parametrize("ahead_s", MINUTES_S)
async def test_a_shard_whose_clock_is_wrong_fires_when_it_is_time_and_needs_no_schedule(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    set_clock(monkeypatch, ahead_s)
    async with at_work(broker_settings):
        run_id = await start(store, {**chain("brief", 1), "timeout": "500ms"})
        await ended(store, run_id)
    began, fired = await one(store, run_id, WorkflowStarted), await one(store, run_id, TimerFired)
    assert fired.at >= began.at + 0.5
    assert fired_by_the_shard(fired)


@pytest.mark.parametrize("ahead_s", MINUTES_S)
async def test_what_was_due_before_a_shard_came_is_fired_by_it_at_once_whatever_its_clock_says(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    """Its event is old when it is delivered. A shard that took it for new would wait for the whole time again, or have
    the broker wait."""
    run_id = await start(store, {**chain("overdue", 1), "timeout": "2500ms"})
    due = (await one(store, run_id, WorkflowStarted)).at + 2.5

    async def is_over() -> bool:
        return await store.history.now() >= due

    await until(is_over)
    set_clock(monkeypatch, ahead_s)
    async with at_work(broker_settings):
        await ended(store, run_id)
    assert fired_by_the_shard(await one(store, run_id, TimerFired))


@pytest.mark.parametrize("ahead_s", MINUTES_S)
async def test_what_the_broker_fires_is_in_time_too(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    set_clock(monkeypatch, ahead_s)
    async with at_work(broker_settings):
        run_id = await start(store, {**chain("lasting", 1), "timeout": "3s"})
        await ended(store, run_id)
    began, fired = await one(store, run_id, WorkflowStarted), await one(store, run_id, TimerFired)
    assert fired.at >= began.at + 3
    assert not fired_by_the_shard(fired)


async def test_the_brokers_clock_is_between_what_it_stored_before_and_after(store: Store) -> None:
    before = await start(store, chain("before", 1))
    now = await store.history.now()
    after = await start(store, chain("after", 1))
    assert (await one(store, before, WorkflowStarted)).at <= now <= (await one(store, after, WorkflowStarted)).at


def test_a_clock_that_nobody_has_seen_says_of_nothing_that_it_is_due() -> None:
    assert -math.inf == BrokerClock().now()


def test_a_clock_of_the_broker_that_is_set_back_is_believed() -> None:
    clock = BrokerClock()
    for at in (1_000_000.0, 500.0):
        clock.observe(at, time.monotonic())
    assert 500.0 <= clock.now() < 1_000_000.0


async def test_the_oldest_event_whose_timer_is_in_memory_holds_the_acknowledgements(
    store: Store, broker_settings: BrokerSettings
) -> None:
    """A run that is read for long sets its timers behind others whose events came later."""
    run_id, timer = new_run_id(), SetTimer("workflow", time.time() + 3600)
    partition = names.partition(run_id)
    other = next(one for one in iter(new_run_id, None) if names.partition(one) == partition)
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as shard:
        now = time.monotonic()
        shard.timers.arm(other, timer, now - 1)
        shard.timers.arm(run_id, timer, now - 2)
        assert now - 2 == shard.timers.holds_from(partition)
        shard.timers.arm(run_id, timer, now)  # a state that was read again: its event is as old as before
        assert now - 2 == shard.timers.holds_from(partition)
        shard.timers.arm(run_id, SetTimer("workflow", time.time() + 7200), now)  # another one, of a later event
        assert now - 1 == shard.timers.holds_from(partition)


@pytest.mark.parametrize("act", ["_fire", "_schedule"])
async def test_a_timer_is_tried_again_after_an_error_of_our_own(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """Given up, it would hold the acknowledgements of its partition for good."""
    tried, done = 0, getattr(Timers, act)

    async def fails_once(self: Timers, armed: Any) -> Any:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise ZeroDivisionError("a bug")
        return await done(self, armed)

    monkeypatch.setattr(Timers, act, fails_once)
    monkeypatch.setattr(timers, "TIMER_DURABLE_AFTER_S", 0.1)
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as shard:
        run_id = await start(store, {**chain("again", 1), "timeout": "50ms" if act == "_fire" else "1s"})
        await ended(store, run_id)
        await until_true(lambda: shard.timers.holds_from(names.partition(run_id)) == math.inf)
    assert tried == 2


async def test_a_timer_that_a_former_owner_gave_to_the_broker_is_withdrawn_there_too(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes over sets it in memory, where an event that comes again may have set it."""
    with monkeypatch.context() as at_once:
        at_once.setattr(timers, "TIMER_DURABLE_AFTER_S", 0.1)
        async with at_work(broker_settings):
            run_id = await start(store, {**chain("heir", 1), "timeout": "1h"})
            subject = names.schedule_subject(run_id, "workflow")
            await until(lambda: store.reader.one(names.HISTORY, subject))
    await store.history.append(StepCompleted(run_id=run_id, step_id="s0", attempt_number=1))  # while nobody is there
    async with at_work(broker_settings):
        await ended(store, run_id)

        async def is_withdrawn() -> bool:
            return await store.reader.one(names.HISTORY, subject) is None

        await until(is_withdrawn)
