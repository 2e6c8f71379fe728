"""Triggers over a real broker: every trigger event starts one run, whichever process dies, and former generations start
none."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from datetime import UTC, datetime
from uuid import uuid4

import msgspec
import orjson
import pytest

from penstock.actors.control import triggers
from penstock.actors.triggers import trigger_runner as running
from penstock.actors.triggers.reconcile import prepare, reconcile
from penstock.actors.triggers.trigger_events import TriggerEventHandler
from penstock.broker import message_ids, names
from penstock.broker.nats.pull import Delivery
from penstock.broker.store import Store
from penstock.broker.streams.events import Tick, text_of
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, Invalid, NotFound
from penstock.engine.trigger.trigger import Trigger
from tests.support.trigger_events import engine, gone, inputs, make, nothing_left, publish, started, until_started
from tests.support.waiting import until, until_true
from tests.support.world import chain, register

KINDS = {
    "subject": {"subject": {"subject": "orders.*"}},
    "event": {"event": {"subject": "event.orders.*"}},
    "webhook": {"webhook": {"secret": "s"}},
}
SUBJECTS = {"subject": "orders.new", "event": "event.orders.new", "webhook": "event.webhook.webhook"}


@pytest.fixture
async def store(store: Store) -> Store:
    """Without the triggers of earlier tests."""
    for kept in await triggers.get_all(store):
        await triggers.delete(store, kept.trigger.name)
    return store


async def workflow(store: Store, name: str, **more: object) -> str:
    await register(store, {**chain(name, 1), **more})
    return name


@pytest.mark.parametrize("kind", KINDS)
async def test_each_occurrence_starts_one_run_in_one_of_two_engines(
    store: Store, broker_settings: BrokerSettings, kind: str
) -> None:
    name = await workflow(store, f"two.{kind}")
    kept = await make(store, kind, name, **KINDS[kind])
    async with engine(broker_settings), engine(broker_settings):
        await publish(store, SUBJECTS[kind], *(b"%d" % n for n in range(300)))
        await until_started(store, name, 300)
        await nothing_left(store, await triggers.get(store, kind))
    assert await inputs(store, name) == sorted(map(str, range(300)))
    assert {(one.trigger.name, one.trigger.kind) for one in await started(store, name) if one.trigger} == {(kind, kind)}
    assert kept.trigger.name == kind


async def test_where_nothing_is_exported_a_run_says_nothing_of_its_senders_span(
    store: Store, broker_settings: BrokerSettings
) -> None:
    name = await workflow(store, "untraced")
    await make(store, "subject", name, **KINDS["subject"])
    async with engine(broker_settings):
        await store.publisher.send("orders.new", b"1", {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
        await until_started(store, name, 1)
    found = [one.data for one in await store.reader.subject(names.HISTORY, "history.*.*") if b"untraced" in one.data]
    assert [False] == [b"trace_parent" in body for body in found]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_comes_while_no_engine_is_there_waits(
    store: Store, broker_settings: BrokerSettings, kind: str
) -> None:
    name = await workflow(store, f"waits.{kind}")
    await make(store, kind, name, **KINDS[kind])
    await publish(store, SUBJECTS[kind], b"1", b"2")
    async with engine(broker_settings):
        await until_started(store, name, 2)
    await publish(store, SUBJECTS[kind], b"3")
    async with engine(broker_settings):
        await until_started(store, name, 3)
        await nothing_left(store, await triggers.get(store, kind))
    assert await inputs(store, name) == ["1", "2", "3"]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_came_before_the_trigger_or_while_it_was_disabled_is_not_its_own(
    store: Store, broker_settings: BrokerSettings, kind: str
) -> None:
    name = await workflow(store, f"before.{kind}")
    await publish(store, SUBJECTS[kind], b"0")
    async with engine(broker_settings):
        await make(store, kind, name, **KINDS[kind])
        await publish(store, SUBJECTS[kind], b"1")
        await until_started(store, name, 1)
        await make(store, kind, name, **KINDS[kind], enabled=False)
        await publish(store, SUBJECTS[kind], b"2")
        await make(store, kind, name, **KINDS[kind])
        await publish(store, SUBJECTS[kind], b"3")
        await until_started(store, name, 2)
        await nothing_left(store, await triggers.get(store, kind))
    assert await inputs(store, name) == ["1", "3"]


@pytest.mark.parametrize("kind", [*KINDS, "cron"])
@pytest.mark.parametrize("how", ["deleted", "disabled"])
async def test_a_trigger_that_is_over_leaves_nothing_and_starts_nothing(
    store: Store, broker_settings: BrokerSettings, kind: str, how: str
) -> None:
    name = await workflow(store, f"over.{kind}.{how}")
    source = KINDS.get(kind, {"cron": {"expression": "0 0 1 1 *"}})
    kept = await make(store, kind, name, **source)
    if kind in SUBJECTS:
        await publish(store, SUBJECTS[kind], b"waiting")
    else:
        await store.events.schedule(Tick(kind, kept.generation, text_of(datetime.now(UTC))))
    if how == "deleted":
        await triggers.delete(store, kind)
        with pytest.raises(NotFound):
            await triggers.get(store, kind)
    else:
        await make(store, kind, name, **source, enabled=False)
    assert await gone(store, kept.generation)
    async with engine(broker_settings):
        if kind in SUBJECTS:
            await publish(store, SUBJECTS[kind], b"late")
        other = await workflow(store, f"other.{kind}.{how}")
        await make(store, "other", other, event={"subject": "event.other"})
        await publish(store, "event.other", b"1")
        await until_started(store, other, 1)
    assert await started(store, name) == []


@pytest.mark.parametrize(
    "source", [KINDS["event"], {"cron": {"expression": "0 0 1 1 *", "timezone": "UTC"}}], ids=["event", "cron"]
)
async def test_an_engine_that_was_slow_leaves_nothing_of_a_trigger_that_is_over(
    store: Store, source: dict[str, object]
) -> None:
    await make(store, "slow", await workflow(store, "slow"), **source)
    seen = await triggers.get(store, "slow")
    await triggers.delete(store, "slow")
    await prepare(store, seen)
    assert await gone(store, seen.generation)


async def test_a_message_on_its_way_when_its_trigger_goes_starts_nothing(
    store: Store, broker_settings: BrokerSettings
) -> None:
    """Handed to an engine that has not heard of the deletion."""
    name = await workflow(store, "onitsway")
    await make(store, "onitsway", name, **KINDS["event"])
    kept = await triggers.get(store, "onitsway")
    arrived = []
    async with store.sources.consume(kept, arrived.append, lambda: 10):
        await publish(store, SUBJECTS["event"], b"1")
        await until_true(lambda: bool(arrived))
        await triggers.delete(store, "onitsway")
        await TriggerEventHandler(store).handle("onitsway", kept.generation, arrived[0])
        await make(store, "onitsway", name, **KINDS["event"])
        await TriggerEventHandler(store).handle("onitsway", kept.generation, arrived[0])
    assert await started(store, name) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_delivery_that_comes_again_starts_nothing_more(
    store: Store, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash between the start of the run and the acknowledgement, in another engine; long after the broker
    has forgotten the ids of its messages."""
    monkeypatch.setattr(message_ids, "of_event", lambda event: uuid4().hex)
    name = await workflow(store, f"again.{kind}")
    await make(store, kind, name, **KINDS[kind])
    kept = await triggers.get(store, kind)
    arrived = []
    async with store.sources.consume(kept, arrived.append, lambda: 10):
        await publish(store, SUBJECTS[kind], b"1")
        await until_true(lambda: bool(arrived))
    for _ in range(3):
        await TriggerEventHandler(store).handle(kind, kept.generation, arrived[0])
    assert await inputs(store, name) == ["1"]


async def test_an_event_that_its_publisher_names_is_one_occurrence_however_often_it_comes(
    store: Store, broker_settings: BrokerSettings
) -> None:
    name = await workflow(store, "named")
    await make(store, "named", name, **KINDS["event"])
    async with engine(broker_settings):
        for event_id in ("a", "a", "b"):
            # No message id: as if the broker's own window were over.
            await store.publisher.send("event.orders.new", orjson.dumps(event_id), {names.EVENT_ID: event_id})
        await nothing_left(store, await triggers.get(store, "named"))
    assert await inputs(store, name) == ['"a"', '"b"']


async def test_a_trigger_created_again_under_a_name_gets_its_own_trigger_events(
    store: Store, broker_settings: BrokerSettings
) -> None:
    """Its stream counts from 1 again: an occurrence must not pass for the former trigger's."""
    name = await workflow(store, "anew")
    async with engine(broker_settings):
        for count in (1, 2):
            await make(store, "anew", name, **KINDS["subject"])
            await publish(store, SUBJECTS["subject"], b"%d" % count)
            await until_started(store, name, count)
            await triggers.delete(store, "anew")
    assert await inputs(store, name) == ["1", "2"]


async def test_a_changed_workflow_or_filter_loses_nothing_of_what_waits(
    store: Store, broker_settings: BrokerSettings
) -> None:
    name, other = await workflow(store, "former"), await workflow(store, "latter")
    await make(store, "change", name, event={"subject": "event.change"})
    await publish(store, "event.change", b'{"n": 1}', b'{"n": 2}')
    await make(store, "change", other, event={"subject": "event.change", "field": "n", "value": "2"})
    async with engine(broker_settings):
        await until_started(store, other, 1)
        await nothing_left(store, await triggers.get(store, "change"))
    assert await inputs(store, other) == ['{"n": 2}']
    assert await started(store, name) == []


async def test_the_input_is_what_came_or_the_triggers_own(store: Store, broker_settings: BrokerSettings) -> None:
    name, own = await workflow(store, "plain"), await workflow(store, "own")
    await make(store, "plain", name, event={"subject": "event.input"})
    await make(store, "own", own, event={"subject": "event.input"}, input={"mine": [1, 2]})
    async with engine(broker_settings):
        await publish(store, "event.input", b'{"a":1}', b"not json", b"\xff", b"")
        await until_started(store, name, 4)
        await until_started(store, own, 4)
    assert await inputs(store, name) == sorted(['{"a":1}', '"not json"', '"\ufffd"', '""'])
    assert await inputs(store, own) == ['{"mine":[1,2]}'] * 4


async def test_what_can_start_no_run_is_kept_and_holds_nothing_up(
    store: Store, broker_settings: BrokerSettings
) -> None:
    schema = {"type": "object", "required": ["n"]}
    name = await workflow(store, "strict", input_schema=schema)
    await make(store, "strict.one", name, event={"subject": "event.strict"})
    async with engine(broker_settings):
        await publish(store, "event.strict", b'{"m": 1}', b'{"n": 1}')
        await until_started(store, name, 1)
        await nothing_left(store, await triggers.get(store, "strict.one"))
    assert await inputs(store, name) == ['{"n": 1}']
    (dead,) = await store.reader.subject(names.DEAD, names.dead_trigger_subject("strict.one"))
    found = await store.broker.api(f"STREAM.MSG.GET.{names.DEAD}", {"seq": dead.seq})
    headers = base64.b64decode(found["message"]["hdrs"]).decode()
    assert dead.data == b'{"m": 1}'
    assert "Dead-Trigger: strict.one" in headers
    assert '"n" is a required property' in headers


async def test_a_workflow_that_is_gone_is_a_dead_letter(store: Store, broker_settings: BrokerSettings) -> None:
    name = await workflow(store, "vanishing")
    await make(store, "vanishing", name, event={"subject": "event.vanishing"})
    await store.bucket(names.DEFINITIONS).delete(name)
    async with engine(broker_settings):
        await publish(store, "event.vanishing", b"1")
        await until(lambda: store.reader.subject(names.DEAD, names.dead_trigger_subject("vanishing")))
    assert await started(store, name) == []


async def test_a_subject_within_anothers_shares_its_stream_for_as_long_as_one_needs_it(
    store: Store, broker_settings: BrokerSettings
) -> None:
    wide, narrow = await workflow(store, "wide"), await workflow(store, "narrow")
    first = await make(store, "wide", wide, subject={"subject": "parts.>"})
    await make(store, "narrow", narrow, subject={"subject": "parts.eu.*"})
    stream = names.capture_stream("wide", first.generation)
    async with engine(broker_settings):
        await publish(store, "parts.eu.1", b"1")
        await publish(store, "parts.us.1", b"2")
        await until_started(store, wide, 2)
        await until_started(store, narrow, 1)
        await triggers.delete(store, "wide")
        await publish(store, "parts.eu.1", b"3")
        await until_started(store, narrow, 2)
        assert await inputs(store, narrow) == ["1", "3"]
        assert stream in await streams(store)
        await triggers.delete(store, "narrow")
    assert stream not in await streams(store)
    assert await inputs(store, wide) == ["1", "2"]


async def test_a_wider_subject_is_refused_while_a_trigger_needs_a_part_of_it(store: Store) -> None:
    name = await workflow(store, "refused")
    await make(store, "part", name, subject={"subject": "goods.eu"})
    with pytest.raises(Invalid, match=r'"goods.\*" overlaps with "goods.eu" of another trigger'):
        await make(store, "whole", name, subject={"subject": "goods.*"})
    with pytest.raises(NotFound):
        await triggers.get(store, "whole")
    await make(store, "part", name, subject={"subject": "goods.*"})  # its own part is no obstacle
    assert (await triggers.get(store, "part")).active


async def test_a_stream_of_a_users_own_is_used_and_left_alone(store: Store, broker_settings: BrokerSettings) -> None:
    await store.broker.api("STREAM.CREATE.SALES", {"name": "SALES", "subjects": ["sales.>"]})
    name = await workflow(store, "sales")
    await publish(store, "sales.eu", b"0")
    kept = await make(store, "sales", name, subject={"subject": "sales.eu"})
    assert (await triggers.get(store, "sales")).stream == "SALES"
    async with engine(broker_settings):
        await publish(store, "sales.eu", b"1")
        await until_started(store, name, 1)
    await triggers.delete(store, "sales")
    assert await gone(store, kept.generation)
    assert "SALES" in await streams(store)
    assert await inputs(store, name) == ["1"]


async def test_a_subject_that_a_stream_keeps_in_part_or_as_a_work_queue_is_refused(store: Store) -> None:
    name = await workflow(store, "kept")
    await store.broker.api("STREAM.CREATE.HALF", {"name": "HALF", "subjects": ["half.a"]})
    await store.broker.api("STREAM.CREATE.JOBS", {"name": "JOBS", "subjects": ["jobs.>"], "retention": "workqueue"})
    with pytest.raises(Invalid, match="stored by the stream HALF only in part"):
        await make(store, "half", name, subject={"subject": "half.*"})
    with pytest.raises(Invalid, match="stored by the work queue JOBS"):
        await make(store, "jobs", name, subject={"subject": "jobs.a"})


async def test_a_stream_that_somebody_removed_is_replaced(store: Store, broker_settings: BrokerSettings) -> None:
    name = await workflow(store, "removed")
    await store.broker.api("STREAM.CREATE.LOANED", {"name": "LOANED", "subjects": ["loaned.>"]})
    await make(store, "removed", name, subject={"subject": "loaned.a"})
    await store.broker.api("STREAM.DELETE.LOANED")
    async with engine(broker_settings):
        kept = await triggers.get(store, "removed")
        assert kept.stream.startswith(names.CAPTURE_PREFIX)
        await publish(store, "loaned.a", b"1")
        await until_started(store, name, 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_an_interrupted_change_left_is_done_by_the_engine(
    store: Store, broker_settings: BrokerSettings, kind: str
) -> None:
    """A front end that died right after it had written the trigger: nobody but the engine knows."""
    name = await workflow(store, f"left.{kind}")
    kept = await make(store, kind, name, **KINDS[kind])
    former = await triggers.get(store, kind)
    async with engine(broker_settings):
        await half_change(store, msgspec.structs.replace(kept.trigger, enabled=False))
        await until(lambda: gone(store, former.generation))
        await half_change(store, kept.trigger)

        async def active() -> bool:
            return (await triggers.get(store, kind)).active

        await until(active)
        await nothing_left(store, await triggers.get(store, kind))
        await publish(store, SUBJECTS[kind], b"1")
        await until_started(store, name, 1)


async def half_change(store: Store, trigger: Trigger) -> None:
    """Write it as a front end does, again when the engine wrote in between, and nothing more."""
    while True:
        found = await store.triggers.find(trigger.name)
        with suppress(Conflict):
            await store.triggers.write(found, await triggers._changed(store, trigger, found))
            return


async def test_many_that_change_and_settle_one_trigger_at_once_leave_one_generation(store: Store) -> None:
    name = await workflow(store, "many")
    await asyncio.gather(
        *(make(store, "many", name, subject={"subject": f"many.{n % 3}"}, enabled=n % 4 != 0) for n in range(12))
    )
    await asyncio.gather(*(reconcile(store, "many") for _ in range(5)))
    kept = await triggers.get(store, "many")
    ours = [stream for stream in await streams(store) if stream.startswith(names.CAPTURE_PREFIX + "many")]
    assert ours == ([kept.stream] if kept.trigger.enabled else [])
    assert kept.settled


async def test_what_somebody_else_writes_into_the_bucket_stops_nothing(
    store: Store, broker_settings: BrokerSettings
) -> None:
    name = await workflow(store, "sound")
    await store.bucket(names.TRIGGERS).put("garbage", b"{")
    await make(store, "sound", name, **KINDS["event"])
    async with engine(broker_settings):
        await publish(store, SUBJECTS["event"], b"1")
        await until_started(store, name, 1)
    assert [kept.trigger.name for kept in await triggers.get_all(store)] == ["sound"]
    await store.bucket(names.TRIGGERS).delete("garbage")


async def streams(store: Store) -> list[str]:
    return (await store.broker.api("STREAM.NAMES")).get("streams") or []


@pytest.mark.parametrize("kind", [*KINDS, "cron"])
async def test_an_event_that_cannot_be_handled_becomes_a_dead_letter_after_three_deliveries(
    store: Store, broker_settings: BrokerSettings, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await workflow(store, f"poison.{kind}")
    kept = await make(store, kind, name, **KINDS.get(kind, {"cron": {"expression": "0 0 1 1 *"}}))
    before, poison = await store.dead_letters.last_seq(), (b"1" if kind in SUBJECTS else None)
    handle, seen = TriggerEventHandler.handle, list[int]()

    async def failing(self: TriggerEventHandler, trigger: str, generation: str, delivery: Delivery) -> None:
        if poison in (None, delivery.data):
            seen.append(delivery.deliveries)
            raise ZeroDivisionError("a bug")
        await handle(self, trigger, generation, delivery)

    monkeypatch.setattr(TriggerEventHandler, "handle", failing)
    monkeypatch.setattr(running, "RETRY_S", 0.01)
    async with engine(broker_settings):
        if kind in SUBJECTS:
            await publish(store, SUBJECTS[kind], b"1", b"2")
            await until_started(store, name, 1)
        else:
            await store.events.withdraw(kind, kept.generation)
            assert await store.events.schedule(Tick(kind, kept.generation, text_of(datetime.now(UTC))))
        await until(lambda: _letter_after(store, before))
        await nothing_left(store, await triggers.get(store, kind))
        dead_letter, body = await store.dead_letters.get(before + 1)
    assert seen == [1, 2, 3]
    assert (dead_letter.kind, dead_letter.trigger, dead_letter.error) == ("trigger", kind, "ZeroDivisionError: a bug")
    assert await inputs(store, name) == (["2"] if kind in SUBJECTS else [])
    if kind in SUBJECTS:
        assert body == b"1"
    else:
        assert await store.events.scheduled(kind, kept.generation)


async def _letter_after(store: Store, seq: int) -> bool:
    return await store.dead_letters.last_seq() > seq
