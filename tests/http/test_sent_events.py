"""Events that programs send: what is taken, under which names, and that a key stands for one event."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from typing import Any

import msgspec
import orjson
import pytest
from falcon.testing import ASGIConductor

from penstock.actors.control import events
from penstock.actors.control.events import EventClaim
from penstock.broker import names, record_keys
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.config.limits import DEDUP_WINDOW_BROKER_S, PAYLOAD_BYTES_MAX
from penstock.config.settings import BrokerSettings
from tests.http.test_bad_input import BROKEN
from tests.support.pages import carry_out
from tests.support.trigger_events import engine, inputs, make, nothing_left, until_started
from tests.support.world import chain, register

PAID = {"order": 17, "state": "paid"}


async def send(http: ASGIConductor, name: str, body: Any = PAID, key: str | None = None) -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await http.simulate_post(f"/events/{name}", body=orjson.dumps(body), headers=headers)


async def stored(store: Store, name: str) -> list[Stored]:
    return await store.reader.subject(names.EVENTS, f"event.{name}")


async def test_an_event_is_stored_when_the_answer_comes(http: ASGIConductor, store: Store) -> None:
    body = b'{"b": 1.10, "a": [null]}'
    answer = await http.simulate_post("/events/sent.once", body=body)
    (event,) = await stored(store, "sent.once")
    assert (202, {"seq": event.seq}) == (answer.status_code, answer.json)
    assert body == event.data


@pytest.mark.parametrize("body", [None, 0, "text", [], {}, True])
async def test_any_json_is_an_event(http: ASGIConductor, store: Store, body: Any) -> None:
    seq = (await send(http, "sent.any", body)).json["seq"]
    event = (await stored(store, "sent.any"))[-1]
    assert (seq, body) == (event.seq, orjson.loads(event.data))


async def test_every_request_without_a_key_is_another_event(http: ASGIConductor, store: Store) -> None:
    found = [(await send(http, "sent.twice")).json["seq"] for _ in range(2)]
    assert found == [event.seq for event in await stored(store, "sent.twice")]
    assert 2 == len(set(found))


async def test_an_event_starts_one_run_of_every_trigger_that_listens(
    http: ASGIConductor, store: Store, broker_settings: BrokerSettings
) -> None:
    for name, more in (("sent.all", {}), ("sent.some", {"field": "state", "value": "paid"})):
        await register(store, chain(name, 1))
        await make(store, name, name, event={"subject": "event.sent.order", **more})
    async with engine(broker_settings):
        await send(http, "sent.order", PAID, "k")
        await send(http, "sent.order", {"state": "open"})
        await send(http, "sent.order", PAID, "k")
        await until_started(store, "sent.all", 2)
        await until_started(store, "sent.some", 1)
        for name in ("sent.all", "sent.some"):
            found = (await store.triggers.find(name)).kept
            assert found is not None
            await nothing_left(store, found)
    paid, unpaid = orjson.dumps(PAID).decode(), '{"state":"open"}'
    assert sorted([paid, unpaid]) == await inputs(store, "sent.all")
    assert [paid] == await inputs(store, "sent.some")


async def test_a_key_stands_for_the_first_event_whatever_comes_later(http: ASGIConductor, store: Store) -> None:
    answers = [await send(http, "sent.keyed", body, "k") for body in (PAID, PAID, {"another": 1})]
    (event,) = await stored(store, "sent.keyed")
    assert [(202, {"seq": event.seq})] * 3 == [(answer.status_code, answer.json) for answer in answers]
    assert PAID == orjson.loads(event.data)
    other = await send(http, "sent.keyed", PAID, "another key")
    assert event.seq < other.json["seq"]


async def test_a_key_belongs_to_its_name(http: ASGIConductor) -> None:
    first, second = [(await send(http, name, PAID, "same")).json["seq"] for name in ("sent.here", "sent.there")]
    assert first != second


async def test_many_at_once_with_one_key_are_one_event(http: ASGIConductor, store: Store) -> None:
    answers = await asyncio.gather(*(send(http, "sent.crowd", number, "k") for number in range(20)))
    (event,) = await stored(store, "sent.crowd")
    assert {(202, event.seq)} == {(answer.status_code, answer.json["seq"]) for answer in answers}


@pytest.mark.parametrize("reached_the_stream", [True, False])
async def test_a_request_that_died_half_way_is_completed_by_the_next_one_however_late(
    http: ASGIConductor, store: Store, reached_the_stream: bool
) -> None:
    """As the broker has it when it has forgotten message ids."""
    name, key = f"sent.late.{reached_the_stream}", record_keys.event_key(f"sent.late.{reached_the_stream}", "k")
    await send(http, name, "before")
    await store.event_keys.put(key, msgspec.json.encode(EventClaim(await store.events.last_seq())))
    if reached_the_stream:
        await store.publisher.send(f"event.{name}", b'"first"', {names.EVENT_ID: key})
    answers = [await send(http, name, "second", "k") for _ in range(2)]
    _, event = await stored(store, name)
    assert [event.seq] * 2 == [answer.json["seq"] for answer in answers]
    assert ("first" if reached_the_stream else "second") == orjson.loads(event.data)


async def test_a_request_that_was_suspended_after_its_claim_finds_the_event_of_another(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For so long that the broker has forgotten the message id of that event."""
    name = "sent.suspended"
    put, stored_by_others, suspended_s = store.event_keys.put, list[int](), [0.0]

    async def claimed(key: str, value: bytes, expect: int | None = None) -> int:
        revision = await put(key, value, expect)
        if not stored_by_others:
            ack = orjson.loads(await store.publisher.send(f"event.{name}", b'"first"', {names.EVENT_ID: key}))
            stored_by_others.append(ack["seq"])
            suspended_s[0] = DEDUP_WINDOW_BROKER_S
        return revision

    monkeypatch.setattr(store.event_keys, "put", claimed)
    monkeypatch.setattr(events, "now", lambda: time.monotonic() + suspended_s[0])
    seq = await events.send(store, name, b'"late"', "k")

    (event,) = await stored(store, name)
    assert [event.seq] == stored_by_others == [seq]
    assert await events.send(store, name, b'"later"', "k") == seq


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("webhook.push", 'event name "webhook.push" may not begin with "webhook."'),
        ("cron.nightly", 'event name "cron.nightly" may not begin with "cron."'),
        ("", "the event's name is missing"),
        ("a b", "may hold only A-Z a-z 0-9 _ - and single dots between them"),
        ("a..b", "may hold only"),
        (".a", "may hold only"),
        ("a.", "may hold only"),
        ("*", "may hold only"),
        (">", "may hold only"),
        ("a.>", "may hold only"),
        ("%0d%0aNats-Msg-Id", "may hold only"),
        ("a%00b", "may hold only"),
        ("webhook%2epush", "may not begin with"),
        ("x" * 129, "has 129 characters, 128 is the most"),
    ],
)
async def test_a_wrong_name_is_400_and_nothing_is_stored(
    http: ASGIConductor, store: Store, name: str, problem: str
) -> None:
    before = await store.events.last_seq()
    answer = await send(http, name)
    assert (400, True) == (answer.status_code, problem in answer.text)
    assert before == await store.events.last_seq()


@pytest.mark.parametrize("name", ["webhook", "cron", "webhooks.push", "cron-like.x", "x" * 128])
async def test_names_that_only_resemble_the_services_own_are_taken(http: ASGIConductor, name: str) -> None:
    assert 202 == (await send(http, name)).status_code


@pytest.mark.parametrize("kind", BROKEN)
async def test_what_is_no_json_is_400_and_nothing_is_stored(http: ASGIConductor, store: Store, kind: str) -> None:
    before = await store.events.last_seq()
    answer = await http.simulate_post("/events/sent.bad", body=BROKEN[kind])
    assert (400, True) == (answer.status_code, answer.text.startswith("the body"))
    assert before == await store.events.last_seq()


async def test_a_body_may_have_one_mebibyte_and_two_are_413(http: ASGIConductor, store: Store) -> None:
    assert 202 == (await send(http, "sent.large", "x" * (PAYLOAD_BYTES_MAX - 2))).status_code
    before = await store.events.last_seq()
    for size in (PAYLOAD_BYTES_MAX - 1, 2 * PAYLOAD_BYTES_MAX):
        answer = await send(http, "sent.large", "x" * size, "k")
        assert (413, f"the body has {size + 2} bytes, {PAYLOAD_BYTES_MAX} is the most\n") == (
            answer.status_code,
            answer.text,
        )
    assert before == await store.events.last_seq()


@pytest.mark.parametrize("key", ["", "k" * 256, "a\tb", "ü"])
async def test_a_wrong_key_is_400_and_names_the_rule(http: ASGIConductor, store: Store, key: str) -> None:
    before = await store.events.last_seq()
    answer = await http.simulate_post("/events/sent.key", body=b"1", headers={"Idempotency-Key": key})
    assert (400, "Idempotency-Key must be 1 to 255 printable ASCII characters\n") == (answer.status_code, answer.text)
    assert before == await store.events.last_seq()


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
async def test_what_the_page_shows_is_so(served: str, definitions: None, store: Store) -> None:
    """But for the sequences, whose differences are as shown."""
    page, printed = await carry_out("triggers.md", "/events/", served)
    first = [int(re.findall(r"[0-9]+", lines[0])[0]) for lines in (page, printed)]
    assert [
        re.sub(r"\b2[0-9]{2}\b", lambda seq: str(int(seq[0]) - first[0] + first[1]), line) for line in page
    ] == printed
    assert 3 == len(await stored(store, "order.paid"))
