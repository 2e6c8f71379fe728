"""The TELEMETRY stream: what gets there, and that nobody ever waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import orjson
import pytest

from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.broker.streams.telemetry import BEHIND_BYTES, SPANS_WAITING_MAX, ProcessReport, StreamState
from penstock.telemetry.meters import Meters
from penstock.telemetry.tracing import Span
from tests.support.own_broker import OwnBroker, own_broker
from tests.support.waiting import until, until_true

TRACE = "ab" * 16
AT_ONCE_S = 5.0


def span(number: int) -> Span:
    return Span(TRACE, f"{number:016x}", "step a", 1, 2, attributes={"penstock.run_id": TRACE})


def report(process: str) -> ProcessReport:
    return ProcessReport(process, "host", 1, f"life of {process}", "2026-01-01T00:00:00Z", Meters().samples())


def dropped(store: Store, kind: str) -> float:
    return store.meters.counter("penstock_telemetry_dropped_total").get((kind,), 0)


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[tuple[OwnBroker, Store]]:
    """A broker that the test may spoil."""
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            yield broker, store


async def test_every_kind_has_its_subject(store: Store) -> None:
    await store.telemetry.send_metrics(report("shard-0"))
    await store.telemetry.send_log("shard-0", {"event": "odd", "level": "warning"})
    await store.telemetry.send_span(span(1))
    subjects = ["telemetry.metrics.shard-0", "telemetry.log.shard-0", f"telemetry.span.{TRACE}"]

    async def all_stored() -> bool:
        return len(await store.reader.last(names.TELEMETRY, subjects)) == 3

    await until(all_stored)
    found = await store.reader.one(names.TELEMETRY, subjects[2])
    assert found is not None
    body = orjson.loads(found.data)
    assert (TRACE, "0000000000000001", "step a", 1, 2) == tuple(
        body[field] for field in ("trace_id", "span_id", "name", "start_time_unix_nano", "end_time_unix_nano")
    )
    assert "parent_span_id" not in body


async def test_a_span_that_is_written_twice_is_stored_once(own: tuple[OwnBroker, Store]) -> None:
    _, store = own
    for number in (1, 1, 2):
        await store.telemetry.send_span(span(number))
    await store.broker.flush()
    await until_state(store, 2)
    assert 2 == (await store.telemetry.state()).messages


async def test_what_comes_while_too_many_spans_wait_is_counted_only(store: Store) -> None:
    for number in range(SPANS_WAITING_MAX + 3):
        store.telemetry.offer(span(number))
    assert SPANS_WAITING_MAX == len(store.telemetry.spans)
    assert 3 == dropped(store, "span")


async def test_without_a_connection_telemetry_is_dropped_at_once(own: tuple[OwnBroker, Store]) -> None:
    broker, store = own
    broker.stop()
    await until_true(lambda: not store.broker.connected)
    began = time.monotonic()
    for number in range(1000):
        await store.telemetry.send_span(span(number))
    assert time.monotonic() - began < 0.5
    assert 1000 == dropped(store, "span")
    assert StreamState() == await store.telemetry.state()


async def test_telemetry_stands_back_while_the_connection_has_much_else_to_write(store: Store) -> None:
    for _ in range(3):
        await store.broker.publish("nobody.listens", b"x" * BEHIND_BYTES)
    await store.telemetry.send_log("p", {"event": "e"})
    assert 1 == dropped(store, "log")
    await store.broker.flush()
    await store.telemetry.send_log("p", {"event": "e"})
    assert 1 == dropped(store, "log")


@pytest.mark.parametrize("trouble", ["missing", "full"])
async def test_a_stream_that_takes_nothing_holds_up_nothing(own: tuple[OwnBroker, Store], trouble: str) -> None:
    _, store = own
    if trouble == "missing":
        await store.broker.api(f"STREAM.DELETE.{names.TELEMETRY}")
    else:
        config = (await store.broker.api(f"STREAM.INFO.{names.TELEMETRY}"))["config"]
        await store.broker.api(f"STREAM.UPDATE.{names.TELEMETRY}", {**config, "max_bytes": 300, "discard": "new"})
    async with asyncio.timeout(2):
        for number in range(2000):
            await store.telemetry.send_span(span(number))
        await store.broker.flush()
    assert await store.signals.put("still.works", b"1")
    assert 0 == dropped(store, "span")
    assert store.broker.connected
    assert (await store.telemetry.state()).messages < 10


async def test_the_state_says_how_much_of_the_limit_is_used(own: tuple[OwnBroker, Store]) -> None:
    _, store = own
    config = (await store.broker.api(f"STREAM.INFO.{names.TELEMETRY}"))["config"]
    await store.broker.api(f"STREAM.UPDATE.{names.TELEMETRY}", {**config, "max_bytes": 100_000})
    for number in range(100):
        await store.telemetry.send_span(span(number))
    await store.broker.flush()
    await until_state(store, 100)
    state = await store.telemetry.state()
    assert 100 == state.messages
    assert round(state.bytes / 1000, 3) == state.percent
    assert 0 < state.percent < 100


async def test_every_answer_is_collected_and_nonsense_is_not(store: Store) -> None:
    for name in ("one", "two"):
        await store.telemetry.answer(lambda name=name: [report(name)])  # type: ignore[misc]

    async def heard() -> set[str]:
        found = await store.telemetry.ask(0.3)
        return {one.process for one in found} if len(found) == 2 else set()

    async with AsyncExitStack() as strangers:
        for body in (b"{}", b"not json", b'[{"process":1}]'):
            await strangers.enter_async_context(store.broker.answering(names.METRICS_PING, body))
        assert {"one", "two"} == await until(heard)


async def until_state(store: Store, messages: int) -> None:
    async def reached() -> bool:
        return (await store.telemetry.state()).messages >= messages

    await until(reached)


async def test_processes_that_are_known_are_not_waited_for_longer_than_they_need(
    own: tuple[OwnBroker, Store],
) -> None:
    broker, store = own

    async def lives(timeout_s: float) -> set[str]:
        return {found.process for found in await store.telemetry.ask_known(timeout_s)}

    async def learned(expected: set[str]) -> None:
        """Return when they are known: then nobody waits for others, who would have an hour for it."""

        async def at_once() -> bool:
            if expected != await lives(0.3):
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(AT_ONCE_S):
                    return expected == await lives(3600.0)
            return False

        await until(at_once)

    async with open_store(broker.settings, "one") as one:
        await one.telemetry.answer(lambda: [report("one"), report("one's supervisor")])
        await learned({"one", "one's supervisor"})

        async with open_store(broker.settings, "two") as two:
            await two.telemetry.answer(lambda: [report("two")])
            await learned({"one", "one's supervisor", "two"})

        await learned({"one", "one's supervisor"})


async def test_after_a_connection_was_lost_all_are_asked_again(own: tuple[OwnBroker, Store]) -> None:
    broker, store = own
    await store.telemetry.answer(lambda: [report("own")])

    async def answered() -> bool:
        return ["own"] == [found.process for found in await store.telemetry.ask_known(0.3)]

    await until(answered)
    broker.kill()
    await until_true(lambda: not store.broker.connected)
    assert [] == await store.telemetry.ask_known(0.3)
    broker.start()
    await until_true(lambda: store.broker.connected)

    await until(answered)
    assert ["own"] == [found.process for found in await store.telemetry.ask_known(3600.0)]
