"""Cron triggers over a real broker: each instant starts one run, in order, whatever is interrupted and whoever was
down."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.actors.control import triggers
from penstock.actors.triggers.reconcile import prepare
from penstock.actors.triggers.trigger_events import TriggerEventHandler
from penstock.broker import names
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store, open_store
from penstock.broker.streams.events import Tick, text_of
from penstock.broker.streams.provisioning import provision
from penstock.broker.triggers.triggers import Progress, StoredTrigger
from penstock.config.settings import BrokerSettings
from penstock.engine.times import rfc3339
from tests.support.clocks import set_clock
from tests.support.own_broker import own_broker
from tests.support.trigger_events import engine, make, nothing_left, started, until_started
from tests.support.waiting import until, until_true
from tests.support.world import chain, register

MINUTELY = {"expression": "* * * * *", "timezone": "Europe/Amsterdam"}
SECONDLY = {"expression": "* * * * * *"}


@pytest.fixture
async def store(store: Store) -> Store:
    """Without the triggers of earlier tests."""
    for kept in await triggers.get_all(store):
        await triggers.delete(store, kept.trigger.name)
    return store


async def workflow(store: Store, name: str) -> str:
    await register(store, chain(name, 1))
    return name


def minutes_ago(count: int) -> datetime:
    """The beginning of a minute: an instant of a minutely trigger."""
    return datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=count)


async def since(store: Store, name: str, begin: datetime) -> StoredTrigger:
    """As if the trigger had been made then, and everything had been down since."""
    found = await store.triggers.find(name)
    assert found.kept
    await store.events.withdraw(name, found.kept.generation)
    kept = replace(found.kept, since=rfc3339(begin.timestamp()))
    await store.triggers.write(found, kept)
    return kept


async def instants(store: Store, name: str) -> list[str]:
    return [one.trigger.at for one in await started(store, name) if one.trigger]


async def delivered(store: Store, kept: StoredTrigger) -> Delivery:
    """The tick that its consumer gives out; it is not acknowledged."""
    arrived: list[Delivery] = []
    async with store.sources.consume(kept, arrived.append, lambda: 1):
        await until_true(lambda: bool(arrived))
    return arrived[0]


async def test_every_second_starts_one_run_with_two_engines(store: Store, broker_settings: BrokerSettings) -> None:
    name = await workflow(store, "secondly")
    async with engine(broker_settings), engine(broker_settings):
        await make(store, "secondly", name, cron=SECONDLY, input={"n": 1})
        await until_started(store, name, 3)
    found = await started(store, name)
    at = [datetime.fromisoformat(one.trigger.at) for one in found if one.trigger]
    assert at == [at[0] + timedelta(seconds=n) for n in range(len(at))]
    assert {bytes(one.input) for one in found} == {b'{"n":1}'}


async def test_instants_that_passed_while_all_was_down_come_in_order_and_the_next_one_waits(
    store: Store, broker_settings: BrokerSettings
) -> None:
    name = await workflow(store, "missed")
    await make(store, "missed", name, cron=MINUTELY)
    kept = await since(store, "missed", minutes_ago(250))
    async with engine(broker_settings), engine(broker_settings):
        await until_started(store, name, 250)
        await nothing_left(store, kept)
    at = [datetime.fromisoformat(one) for one in await instants(store, name)]
    assert at == [at[0] + timedelta(minutes=n) for n in range(len(at))]
    assert minutes_ago(252) < at[0] < minutes_ago(248)
    tick = await store.events.scheduled("missed", kept.generation)
    assert tick is not None
    assert tick.instant > datetime.now(UTC) - timedelta(minutes=1)
    assert {bytes(one.input) for one in await started(store, name)} == {b"null"}


@pytest.mark.parametrize("ahead_s", [3600.0, -3600.0])
async def test_a_trigger_begins_now_whatever_the_clock_says_of_the_host_that_made_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    """Ahead, it would leave out an hour of instants; behind, it would start runs for an hour that was over before it
    was made."""
    name, before = await workflow(store, "now"), await store.history.now()
    set_clock(monkeypatch, ahead_s)
    kept = await make(store, "now", name, cron=MINUTELY)
    assert before <= datetime.fromisoformat(kept.since).timestamp() <= await store.history.now()


async def test_a_tick_that_comes_again_starts_nothing_and_the_chain_goes_on(
    store: Store, broker_settings: BrokerSettings
) -> None:
    """The crash is before the acknowledgement: another engine gets it when the next instant has been scheduled, or has
    passed."""
    name = await workflow(store, "again")
    await make(store, "again", name, cron=MINUTELY)
    kept = await since(store, "again", minutes_ago(3))
    await prepare(store, kept)
    tick = await delivered(store, kept)
    for _ in range(2):
        await TriggerEventHandler(store).handle("again", kept.generation, tick)
    first = [datetime.fromisoformat(at) for at in await instants(store, name)]
    assert first == [first[0] + timedelta(minutes=n) for n in range(len(first))]
    assert len(first) in (3, 4)  # the fourth when a minute has just ended
    async with engine(broker_settings):
        await nothing_left(store, kept)
        assert await store.events.scheduled("again", kept.generation)
    assert len(set(await instants(store, name))) == len(await instants(store, name))


@pytest.mark.parametrize("where", ["before the run", "before the progress", "before the schedule"])
async def test_a_crash_while_a_tick_is_dealt_with_loses_nothing(
    store: Store, broker_settings: BrokerSettings, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await workflow(store, f"crash.{where.replace(' ', '-')}")
    await make(store, name, name, cron=MINUTELY)
    kept = await since(store, name, minutes_ago(2))
    await prepare(store, kept)
    tick = await delivered(store, kept)

    class CrashError(BaseException):
        pass

    async def crash(*args: object, **more: object) -> None:
        raise CrashError

    place = {
        "before the run": (store.history, "append"),
        "before the progress": (store.triggers, "set_progress"),
        "before the schedule": (store.events, "schedule"),
    }[where]
    with monkeypatch.context() as patched:
        patched.setattr(*place, crash)
        with pytest.raises(CrashError):
            await TriggerEventHandler(store).handle(name, kept.generation, tick)
    await tick.give_back()
    async with engine(broker_settings):
        await until_started(store, name, 2)
        await until(lambda: store.events.scheduled(name, kept.generation))
        await nothing_left(store, kept)
    at = await instants(store, name)
    assert at == sorted(set(at))


async def test_a_schedule_that_somebody_removed_is_made_again_where_it_was(
    store: Store, broker_settings: BrokerSettings
) -> None:
    """With all events: what was dealt with is not dealt with again, what was not is caught up."""
    name = await workflow(store, "purged")
    await make(store, "purged", name, cron=MINUTELY)
    kept = await since(store, "purged", minutes_ago(60))
    await store.triggers.set_progress("purged", Progress(kept.generation, text_of(minutes_ago(2))))
    await store.broker.api(f"STREAM.PURGE.{names.EVENTS}")
    async with engine(broker_settings):
        await until_started(store, name, 2)
        await nothing_left(store, kept)
    at = await instants(store, name)
    assert at[0] in {text_of(minutes_ago(1)), text_of(minutes_ago(2))}
    assert len(at) in (2, 3)


async def test_the_same_instant_is_scheduled_again_within_the_brokers_window_for_repeats(store: Store) -> None:
    name = await workflow(store, "window")
    kept = await make(store, "window", name, cron={"expression": "0 0 1 1 *"})
    first = await store.events.scheduled("window", kept.generation)
    await store.events.withdraw("window", kept.generation)
    await prepare(store, kept)
    assert first is not None
    assert await store.events.scheduled("window", kept.generation) == first


async def test_a_late_engine_does_not_take_the_chain_back(store: Store) -> None:
    """One that was stopped in the middle of a tick schedules nothing over what another has scheduled since."""
    name = await workflow(store, "late")
    kept = await make(store, "late", name, cron={"expression": "0 0 1 1 *"})
    scheduled = await store.events.scheduled("late", kept.generation)
    assert not await store.events.schedule(Tick("late", kept.generation, text_of(minutes_ago(5))))
    assert await store.events.scheduled("late", kept.generation) == scheduled


async def test_another_expression_begins_now_and_the_former_schedule_goes(
    store: Store, broker_settings: BrokerSettings
) -> None:
    name = await workflow(store, "changed")
    former = await make(store, "changed", name, cron={"expression": "0 0 1 1 *"})
    kept = await make(store, "changed", name, cron=SECONDLY)
    assert await store.events.scheduled("changed", former.generation) is None
    async with engine(broker_settings):
        await until_started(store, name, 1)
    assert all(at >= kept.since[:19] for at in await instants(store, name))


async def test_what_others_publish_where_ticks_come_starts_nothing(
    store: Store, broker_settings: BrokerSettings
) -> None:
    name = await workflow(store, "foreign")
    kept = await make(store, "foreign", name, cron={"expression": "0 0 1 1 *"})
    async with engine(broker_settings):
        for body in (b"", b"{", b"{}", b'{"trigger":"foreign","generation":"x","at":"2026-01-01T00:00:00Z"}'):
            await store.events.publish(names.cron_target("foreign"), body)
        await nothing_left(store, kept)
    assert await started(store, name) == []


async def test_an_instant_that_passes_while_the_broker_is_down_comes_after_its_restart(tmp_path: Path) -> None:
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            name = await workflow(store, "restart")
            kept = await make(store, "restart", name, cron=SECONDLY)
        broker.kill()
        begin = datetime.fromisoformat(kept.since)

        async def passed() -> bool:
            return datetime.now(UTC) > begin + timedelta(seconds=3)

        await until(passed)
        broker.start()
        async with engine(broker.settings) as store:
            await until_started(store, name, 4)
            at = [datetime.fromisoformat(one) for one in await instants(store, name)]
        first = begin.replace(microsecond=0) + timedelta(seconds=1)
        assert at == [first + timedelta(seconds=n) for n in range(len(at))]
