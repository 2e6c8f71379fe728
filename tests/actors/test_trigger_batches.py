"""Triggers with debounce and batch over a real broker: no event is lost, none starts two runs, whatever fails in
between."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from penstock.actors.control import triggers
from penstock.actors.triggers import batching, trigger_runner
from penstock.actors.triggers.trigger_events import TriggerEventHandler
from penstock.broker import names
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.broker.streams.schedules import due_at
from penstock.broker.triggers.triggers import StoredTrigger
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Invalid
from tests.support.little_room import fill, make_room, small_broker
from tests.support.trigger_events import engine, gone, make, nothing_left, publish, started, until_started
from tests.support.waiting import until
from tests.support.world import chain, register

EVENT = {"event": {"subject": "event.orders.*"}}
KINDS = {
    "subject": ({"subject": {"subject": "orders.*"}}, "orders.new"),
    "event": (EVENT, "event.orders.new"),
    "webhook": ({"webhook": {"secret": "s"}}, "event.webhook.webhook"),
}
POINTS = ("event_stored", "scheduled", "closed", "started", "marked", "removed", "ticked")


@pytest.fixture
async def store(store: Store) -> Store:
    """Without the triggers of earlier tests."""
    for kept in await triggers.get_all(store):
        await triggers.delete(store, kept.trigger.name)
    return store


async def made(store: Store, name: str, **more: Any) -> StoredTrigger:
    await register(store, chain(name, 1))
    return await make(store, name, name, **{**EVENT, **more})


async def values(store: Store, name: str) -> list[Any]:
    return [orjson.loads(bytes(one.input)) for one in await started(store, name)]


async def left(store: Store, kept: StoredTrigger) -> list[str]:
    """What is stored of the trigger's batches, besides its mark."""
    found = await store.reader.subject(names.BATCHES, f"penstock.batch.{kept.generation}.>")
    return [one.subject for one in found if one.subject != names.batch_mark(kept.generation)]


async def until_forgotten(store: Store, kept: StoredTrigger) -> None:
    async def forgotten() -> bool:
        return not await left(store, kept)

    await until(forgotten)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_debounce_starts_one_run_with_the_last_event(
    store: Store, broker_settings: BrokerSettings, kind: str
) -> None:
    source, subject = KINDS[kind]
    await register(store, chain(f"last.{kind}", 1))
    await make(store, kind, f"last.{kind}", **source, debounce={"period": "1s", "max_wait": "1m"})
    kept = await triggers.get(store, kind)
    async with engine(broker_settings), engine(broker_settings):
        await publish(store, subject, *(b"%d" % n for n in range(20)))
        run = (await until_started(store, f"last.{kind}", 1))[0]
        await nothing_left(store, kept)
        await until_forgotten(store, kept)
        await publish(store, subject, b"20", b"21")
        await nothing_left(store, kept)
        await until_forgotten(store, kept)
    found = await values(store, f"last.{kind}")
    assert found == sorted(set(found))
    assert (True, 21) == (19 in found, found[-1])
    assert len(found) < 6  # two, unless this machine was held up for a second
    assert run.trigger is not None
    assert (kind, kind) == (run.trigger.name, run.trigger.kind)


async def test_a_debounce_waits_no_longer_than_max_wait(store: Store, broker_settings: BrokerSettings) -> None:
    kept = await made(store, "bounded", debounce={"period": "500ms", "max_wait": "1s"})
    async with engine(broker_settings):
        for n in range(30):
            await publish(store, "event.orders.new", b"%d" % n)
            await asyncio.sleep(0.1)  # less than the period: without max_wait there would be one run
        await until_forgotten(store, kept)
    found = await values(store, "bounded")
    assert 3 <= len(found) < 30
    assert found == sorted(found)
    assert 29 == found[-1]


async def test_a_batch_ends_with_its_size_or_its_period(store: Store, broker_settings: BrokerSettings) -> None:
    kept = await made(store, "sized", batch={"size": 10, "period": "4s"})
    async with engine(broker_settings), engine(broker_settings):
        await publish(store, "event.orders.new", *(b"%d" % n for n in range(34)))
        await until_started(store, "sized", 4)
        await nothing_left(store, kept)
        await until_forgotten(store, kept)
    found = await values(store, "sized")
    assert [*range(34)] == [n for batch in found for n in batch]
    assert [10, 10, 10, 4] == [len(batch) for batch in found]


async def test_events_with_the_same_key_belong_together(store: Store, broker_settings: BrokerSettings) -> None:
    debounced = await made(store, "keyed", debounce={"period": "4s", "max_wait": "1m", "key": "event.who"})
    batched = await made(store, "piled", batch={"size": 50, "period": "4s", "key": "event.who"})
    bodies = [orjson.dumps({"who": who, "n": n}) for n in range(6) for who in ("a", 7, None, True)]
    async with engine(broker_settings):
        await publish(store, "event.orders.new", *bodies)
        await until_started(store, "keyed", 4)
        await until_started(store, "piled", 4)
        await until_forgotten(store, debounced)
        await until_forgotten(store, batched)
    assert Counter({5: 4}) == Counter(one["n"] for one in await values(store, "keyed"))
    assert [[*range(6)]] * 4 == [[one["n"] for one in batch] for batch in await values(store, "piled")]


@pytest.mark.parametrize(
    ("body", "why"), [(b'{"no": 1}', "key: "), (b'{"who": [1]}', "must not give an object or an array")]
)
async def test_an_event_without_a_key_becomes_a_dead_letter(
    store: Store, broker_settings: BrokerSettings, body: bytes, why: str
) -> None:
    kept = await made(store, "keyless", batch={"size": 1, "period": "1m", "key": "event.who"})
    async with engine(broker_settings):
        await publish(store, "event.orders.new", body, b'{"who": 1}')
        await until_started(store, "keyless", 1)
        await nothing_left(store, kept)
    found = [one for one in (await store.dead_letters.page(limit=100)).dead_letters if one.trigger == "keyless"]
    assert why in found[-1].error or why in found[0].error
    assert [{"who": 1}] in await values(store, "keyless")


async def test_a_batch_that_is_no_input_becomes_one_dead_letter(store: Store, broker_settings: BrokerSettings) -> None:
    await register(store, {**chain("strict", 1), "input_schema": {"type": "array", "items": {"type": "string"}}})
    kept = await make(store, "strict", "strict", **EVENT, batch={"size": 3, "period": "1m"})
    async with engine(broker_settings):
        await publish(store, "event.orders.new", b'"a"', b"2", b'"c"', b'"d"', b'"e"', b'"f"')
        await until_started(store, "strict", 1)
        await until_forgotten(store, kept)
    assert [["d", "e", "f"]] == await values(store, "strict")
    found = [one for one in (await store.dead_letters.page(limit=100)).dead_letters if one.trigger == "strict"]
    assert 1 == len(found)


async def test_what_comes_while_no_engine_is_there_is_not_lost(store: Store, broker_settings: BrokerSettings) -> None:
    kept = await made(store, "away", batch={"size": 100, "period": "500ms"})
    await publish(store, "event.orders.new", b"1", b"2")
    async with engine(broker_settings):
        await until_true_of_batches(store, kept)
    await publish(store, "event.orders.new", b"3")
    async with engine(broker_settings):
        await until_forgotten(store, kept)
        await nothing_left(store, kept)
        await until_forgotten(store, kept)
    assert [1, 2, 3] == sorted(n for batch in await values(store, "away") for n in batch)


async def until_true_of_batches(store: Store, kept: StoredTrigger) -> None:
    """Something is in a batch, and nothing of it may have started yet."""

    async def some() -> list[str]:
        return await left(store, kept)

    await until(some)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    "how", [{"debounce": {"period": "300ms", "max_wait": "10s"}}, {"batch": {"size": 2, "period": "300ms"}}]
)
async def test_a_failure_between_any_two_lines_loses_nothing_and_starts_nothing_twice(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch, point: str, how: dict[str, Any]
) -> None:
    """What fails is delivered again a second later, as after a crash."""
    passed = Counter[str]()

    def reached(name: str) -> None:
        passed[name] += 1
        if name == f"batch.{point}" and passed[name] <= 2:
            raise RuntimeError("killed here")

    monkeypatch.setattr(batching, "reached", reached)
    monkeypatch.setattr(trigger_runner, "RETRY_S", 0.05)
    name = f"fails.{point}.{next(iter(how))}"
    kept = await made(store, name, **how)
    async with engine(broker_settings):
        await publish(store, "event.orders.new", b"1", b"2", b"3")
        await nothing_left(store, kept)
        await until_forgotten(store, kept)
    found = await values(store, name)
    assert passed[f"batch.{point}"] >= 1
    if "batch" in how:
        assert [1, 2, 3] == [n for batch in found for n in batch]
        assert all(1 <= len(batch) <= 2 for batch in found)
    else:
        assert 3 == found[-1]
        assert len(found) == len(set(found))


async def test_an_event_that_is_delivered_again_after_its_batch_has_ended_starts_nothing(store: Store) -> None:
    kept = await made(store, "again", batch={"size": 2, "period": "1m"})
    handler, deliveries = TriggerEventHandler(store), asyncio.Queue[Delivery]()
    await publish(store, "event.orders.new", b"1", b"2", b"3")
    async with store.sources.consume(kept, deliveries.put_nowait, lambda: 1):
        seen = []
        for _ in range(3):
            seen.append(await asyncio.wait_for(deliveries.get(), 10))
            for again in seen:  # the newest, and those before it
                await handler.handle("again", kept.generation, again)
            await seen[-1].ack()
    assert [[1, 2]] == await values(store, "again")
    (open_batch,) = [one for one in await left(store, kept) if one.count(".") == 3]
    batch = await store.batches.find(kept.generation, open_batch.rpartition(".")[2])
    assert batch is not None
    assert (1, False) == (batch.state.count, batch.state.closed)


async def test_events_with_the_same_id_count_once_in_a_batch(store: Store, broker_settings: BrokerSettings) -> None:
    kept = await made(store, "twice", subject={"subject": "orders.*"}, event=None, batch={"size": 3, "period": "1m"})
    async with engine(broker_settings):
        for body in (b"1", b"1", b"2"):
            await store.publisher.send("orders.new", body, {names.EVENT_ID: body.decode()})
        await until_started(store, "twice", 1)
        await until_forgotten(store, kept)
    assert [[1, 2]] == await values(store, "twice")


async def test_a_batch_that_would_be_too_large_ends_before(store: Store, broker_settings: BrokerSettings) -> None:
    kept = await made(store, "large", batch={"size": 100, "period": "4s"})
    bodies = [orjson.dumps(f"{n}" + "x" * 400_000) for n in range(5)]
    async with engine(broker_settings):
        await publish(store, "event.orders.new", *bodies)
        await until_started(store, "large", 3)
        await nothing_left(store, kept)
        await until_forgotten(store, kept)
    assert [2, 2, 1] == [len(batch) for batch in await values(store, "large")]


async def test_nothing_is_left_of_a_trigger_that_is_deleted(store: Store, broker_settings: BrokerSettings) -> None:
    kept = await made(store, "leaves", debounce={"period": "1h", "max_wait": "2h", "key": "event"})
    async with engine(broker_settings):
        await publish(store, "event.orders.new", *(b"%d" % n for n in range(20)))
        await nothing_left(store, kept)
        assert 40 == len(await left(store, kept))  # the events, and their schedules
        await triggers.delete(store, "leaves")
        await until(lambda: gone(store, kept.generation))
    assert [] == await left(store, kept)
    assert [] == await values(store, "leaves")


async def test_a_trigger_keeps_its_open_batches_when_their_numbers_change(
    store: Store, broker_settings: BrokerSettings
) -> None:
    kept = await made(store, "changes", batch={"size": 100, "period": "1h"})
    async with engine(broker_settings):
        await publish(store, "event.orders.new", b"1", b"2")
        await nothing_left(store, kept)
        same = await made(store, "changes", batch={"size": 3, "period": "1h"})
        await publish(store, "event.orders.new", b"3")
        await until_started(store, "changes", 1)
        other = await made(store, "changes", debounce={"period": "1s", "max_wait": "1m"})
    assert [[1, 2, 3]] == await values(store, "changes")
    assert kept.generation == same.generation != other.generation


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"debounce": {"period": "5s"}}, "debounce: max_wait is missing"),
        ({"debounce": {"period": "5s", "max_wait": "1s"}}, "debounce: max_wait 1s must not be shorter than period 5s"),
        ({"debounce": {"period": "0s", "max_wait": "1s"}}, "debounce: period must be longer than 0s"),
        ({"debounce": {"period": "8d", "max_wait": "1s"}}, "debounce: period"),
        ({"batch": {"size": 0, "period": "1s"}}, "batch: size must be a whole number from 1 to 1000"),
        ({"batch": {"size": 1001, "period": "1s"}}, "batch: size must be a whole number from 1 to 1000"),
        ({"batch": {"size": 2, "period": "169h"}}, 'batch: period "169h" is too long, 168h is the most'),
        ({"batch": {"size": 2, "period": "1s", "key": "input.x"}}, "batch: key column 1"),
        ({"batch": {"size": 2, "period": "1s", "max": 2}}, 'batch: unknown field "max"'),
        (
            {"batch": {"size": 2, "period": "1s"}, "debounce": {"period": "1s", "max_wait": "1s"}},
            "debounce and batch: only one of them is possible",
        ),
    ],
)
async def test_what_is_wrong_with_a_batch_is_named(store: Store, more: dict[str, Any], problem: str) -> None:
    with pytest.raises(Invalid) as caught:
        await made(store, "wrong", **more)
    assert any(problem in one for one in caught.value.problems), caught.value.problems


async def test_cron_has_no_batches(store: Store) -> None:
    with pytest.raises(Invalid, match="batch is for subject, event and webhook, not for cron"):
        await made(store, "clock", event=None, cron={"expression": "* * * * *"}, batch={"size": 2, "period": "1s"})


async def test_a_trial_says_when_a_run_would_start_and_with_what(store: Store) -> None:
    await made(store, "tried", batch={"size": 5, "period": "1m", "key": "event.who"})
    trial = await triggers.try_out(store, "tried", b'{"who": 7}')
    assert trial.would_start
    assert (b'[{"who": 7}]', "7") == (bytes(trial.input or b""), trial.key)
    assert "with 5 events, 1m after the first at the latest" == trial.when
    refused = await triggers.try_out(store, "tried", b"{}")
    assert not refused.would_start
    assert refused.problems[0].startswith("key: ")


async def test_triggers_without_batches_need_no_stream_for_them(store: Store) -> None:
    await store.broker.remove(f"STREAM.DELETE.{names.BATCHES}")
    await made(store, "plain")
    await triggers.delete(store, "plain")
    assert names.BATCHES not in (await store.broker.api("STREAM.NAMES"))["streams"]


async def test_a_batch_that_was_due_while_the_broker_had_no_room_starts_when_it_has(tmp_path: Path) -> None:
    with small_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            kept = await made(store, "roomless", batch={"size": 10, "period": "2s"})
            async with engine(broker.settings):
                await publish(store, "event.orders.new", b"1", b"2")
                await nothing_left(store, kept)
                (schedule,) = [subject for subject in await left(store, kept) if ".at." in subject]
                at = due_at((await store.schedules.existing(names.BATCHES, [schedule]))[0])
                assert at is not None
                await fill(store)

                async def is_over() -> bool:
                    return at + 1 < await store.history.now()

                await until(is_over)
                assert [] == await values(store, "roomless")
                await make_room(store)
                await store.batches.repeat_overdue(kept.generation, await store.history.now())
                await until_started(store, "roomless", 1)
            assert [[1, 2]] == await values(store, "roomless")
