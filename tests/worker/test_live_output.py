"""What a task function says: in order, bounded, never in the way of the function, and stored before its outcome."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from penstock.broker import names
from penstock.broker.embedded.server import EmbeddedBroker
from penstock.broker.live import chunks, lines
from penstock.broker.live.allowance import Allowance
from penstock.broker.store import Store
from penstock.config.limits import CHUNK_BYTES_MAX, LOG_LINE_BYTES_MAX, SAID_AT_ONCE_BYTES
from penstock.engine.run.events import StepCompleted, StepFailed
from penstock.worker import BlockingContext, Context, Worker
from tests.worker.conftest import NewWorker
from tests.worker.task_queue import answer, dispatch, outcome, until
from tests.worker.test_broker_away import _kill, _start


async def logged(store: Store, run_id: str) -> list[lines.LogLine]:
    found = await store.reader.subject(names.LOGS, names.log_subject(run_id, ">"))
    batches = [batch for stored in found if (batch := lines.read(stored.data)) is not None]
    read = [lines.read_line(body) for batch in batches for body in batch.lines]
    return [line for line in read if line is not None]


def dropped(found: list[lines.LogLine]) -> int:
    return sum(msgspec.json.decode(line.fields)["dropped"] for line in found if line.text.endswith(" lines dropped"))


async def ends_at(store: Store, stream: str) -> int:
    return int((await store.broker.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])


async def test_lines_of_a_thread_are_stored_in_order_before_its_outcome(
    store: Store, worker: Worker, task: str
) -> None:
    @worker.task(task)
    def say(value: None, ctx: BlockingContext) -> None:
        for n in range(5000):
            ctx.log(str(n))
            ctx.stream(n)

    event = await outcome(store, worker, task)
    assert isinstance(event, StepCompleted)
    assert list(map(str, range(5000))) == [line.text for line in await logged(store, event.run_id)]
    stored = await store.reader.subject(names.CHUNKS, names.chunk_subject(event.run_id, "s"))
    batches = [batch for one in stored if (batch := chunks.read(one.data)) is not None]
    assert list(range(5000)) == [msgspec.json.decode(body) for batch in batches for body in batch.chunks]
    assert len(stored) < 5000


async def test_what_a_second_delivery_says_can_be_told_from_what_the_first_one_said(
    store: Store, new_worker: NewWorker, task: str
) -> None:
    worker = new_worker(max_tasks=2)

    @worker.task(task)
    async def work(value: None, ctx: Context) -> None:
        ctx.stream("Hel" if ctx.deliveries == 1 else "Hello")
        ctx.log("begun")
        if ctx.deliveries == 1:
            await asyncio.Event().wait()

    run_id = await dispatch(store, task)
    async with worker.running():
        await until(lambda: both_said(store, run_id))
        [delivery] = list(worker._intake._running)  # type: ignore[union-attr]
        await delivery.give_back()  # as its ack wait would after the death of the worker
        await answer(store, run_id)
    stored = await store.reader.subject(names.CHUNKS, names.chunk_subject(run_id, "s"))
    batches = [batch for one in stored if (batch := chunks.read(one.data)) is not None]
    assert [([b'"Hel"'], 1, 1), ([b'"Hello"'], 1, 2)] == [
        ([bytes(body) for body in batch.chunks], batch.attempt, batch.delivery) for batch in batches
    ]


async def both_said(store: Store, run_id: str) -> bool:
    counts = [await store.reader.count(said.name, said.subject_of(run_id, ">")) for said in (store.logs, store.chunks)]
    return all(counts)


async def test_a_flood_is_cut_and_what_is_missing_is_counted(store: Store, worker: Worker, task: str) -> None:
    said = 1200

    @worker.task(task)
    async def flood(value: None, ctx: Context) -> None:
        for n in range(said):
            ctx.log("x" * LOG_LINE_BYTES_MAX)
            if n % 100 == 0:
                await asyncio.sleep(0)

    event = await outcome(store, worker, task)
    assert isinstance(event, StepCompleted)
    found = await logged(store, event.run_id)
    notices = [line for line in found if line.text.endswith(" lines dropped")]
    assert said == len(found) - len(notices) + dropped(found)
    assert 0 < dropped(found) < said
    assert {"warning"} == {line.level for line in notices}


async def test_a_function_that_says_nothing_sends_nothing(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def silent(value: None, ctx: Context) -> int:
        return ctx.attempt

    before = [await ends_at(store, name) for name in (names.LOGS, names.CHUNKS)]
    assert isinstance(await outcome(store, worker, task), StepCompleted)
    assert before == [await ends_at(store, name) for name in (names.LOGS, names.CHUNKS)]


async def test_a_broker_that_is_away_keeps_no_function_waiting_and_gets_what_was_said(
    embedded: EmbeddedBroker, store: Store, worker: Worker, task: str
) -> None:
    begun, gate, said = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @worker.task(task)
    async def work(value: None, ctx: Context) -> None:
        begun.set()
        await gate.wait()
        for n in range(100):
            ctx.log(str(n))
            ctx.progress(n, 100)
        said.set()

    run_id = await dispatch(store, task)
    async with worker.running():
        await begun.wait()
        await _kill(embedded, store)
        gate.set()
        await asyncio.wait_for(said.wait(), 5)
        await _start(embedded, store)
        assert isinstance(await answer(store, run_id), StepCompleted)
    assert list(map(str, range(100))) == [line.text for line in await logged(store, run_id)]


@pytest.mark.parametrize(
    ("text", "fields", "shown"),
    [
        ("a\ud800b", {}, ("a?b", None)),
        ("nul\0", {"bytes": b"\xff"}, ("nul\0", {"bytes": "b'\\xff'"})),
        ("", {1: object}, ("", {"1": "<class 'object'>"})),
        ("huge", {"x": "y" * 100_000}, ("huge", {"dropped_bytes": 100_008})),
    ],
)
async def test_any_text_and_any_fields_are_a_line(
    store: Store, worker: Worker, task: str, text: str, fields: Any, shown: Any
) -> None:
    @worker.task(task)
    async def say(value: None, ctx: Context) -> None:
        ctx.log._line(text, "no such level", 0.0, fields)

    event = await outcome(store, worker, task)
    [line] = await logged(store, event.run_id)
    assert shown == (line.text, None if line.fields is msgspec.UNSET else msgspec.json.decode(line.fields))
    assert ("info", "1970-01-01T00:00:00.000000Z") == (line.level, line.at)


@pytest.mark.parametrize(
    ("say", "problem"),
    [
        (lambda ctx: ctx.stream("x" * CHUNK_BYTES_MAX), f"TooLarge: the chunk has {CHUNK_BYTES_MAX + 2} bytes"),
        (lambda ctx: ctx.stream(float("nan")), "NoJson: nan is no number of JSON"),
        (lambda ctx: ctx.progress(-1), "Invalid: done must be a number from 0 on, not -1"),
        (lambda ctx: ctx.progress(1, float("inf")), "Invalid: total must be a number from 0 on, not inf"),
    ],
)
async def test_what_cannot_be_said_fails_the_attempt_with_its_reason(
    store: Store, worker: Worker, task: str, say: Any, problem: str
) -> None:
    @worker.task(task)
    async def wrong(value: None, ctx: Context) -> None:
        ctx.log("before")
        say(ctx)

    event = await outcome(store, worker, task)
    assert isinstance(event, StepFailed)
    assert event.payload.error.startswith(problem)
    assert ["before"] == [line.text for line in await logged(store, event.run_id)]


async def test_a_handler_takes_the_lines_of_its_own_execution_only(store: Store, worker: Worker, task: str) -> None:
    logger, both = logging.getLogger("shared-by-two"), asyncio.Barrier(2)

    @worker.task(task)
    async def say(value: None, ctx: Context) -> None:
        logger.addHandler(ctx.log)
        await both.wait()
        logger.warning(ctx.run_id)
        await both.wait()

    worker._bounds = worker._bounds._replace(max_tasks=2)
    runs = [await dispatch(store, task), await dispatch(store, task)]
    async with worker.running():
        for run_id in runs:
            assert isinstance(await answer(store, run_id), StepCompleted)
    for run_id in runs:
        assert [run_id] == [line.text for line in await logged(store, run_id)]
    assert [] == logger.handlers


def test_what_is_allowed_is_a_burst_then_a_rate_then_little() -> None:
    allowance, now, taken = Allowance(0.0), 0.0, 0
    while allowance.take(1000, now):
        taken += 1064
    assert SAID_AT_ONCE_BYTES - 1064 < taken <= SAID_AT_ONCE_BYTES
    assert not allowance.take(1000, 0.5)  # what is dropped in a flood is counted by the second
    assert allowance.take(1000, 1.0)
    for second in range(2, 200):
        while allowance.take(10_000, float(second)):
            taken += 10_064
    assert taken < 33 * 2**20
    assert 90 < sum(allowance.take(1000, 200.0 + second) for second in range(200)) < 210


async def test_a_line_is_formatted_as_by_the_standard_library(store: Store, worker: Worker, task: str) -> None:
    @worker.task(task)
    async def say(value: None, ctx: Context) -> None:
        ctx.log.info("page %d of %d", 2, 7)
        ctx.log.warning("100 % sure")
        ctx.log.error("%d of %s", "no number")
        try:
            raise ValueError("spoilt")
        except ValueError:
            ctx.log.exception("row %s", 3, table="t")

    event = await outcome(store, worker, task)
    found = await logged(store, event.run_id)
    assert ["page 2 of 7", "100 % sure", "%d of %s ('no number',)"] == [line.text for line in found[:3]]
    assert ("error", {"table": "t"}) == (found[3].level, msgspec.json.decode(found[3].fields))
    assert found[3].text.startswith("row 3\nTraceback (most recent call last):")
    assert found[3].text.endswith("ValueError: spoilt")
