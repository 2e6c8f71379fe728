"""Waits for events in a real shard: events that come early, late and in bursts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from msgspec import UNSET, Raw

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.shard import Shard
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.client.views import WaitView
from penstock.config.limits import KIB, MIB
from penstock.config.settings import BrokerSettings
from penstock.engine.run.event_payloads import Correlation
from penstock.engine.run.events import WorkflowStarted, decode
from penstock.engine.run.state import RunStatus, StepStatus
from penstock.http.messages.views import view
from tests.support.event_waits import received, records, result, send, waiting, waits
from tests.support.waiting import until_true
from tests.support.world import Echo, chain, echo, ended, start

ROOT = Path(__file__).parents[2]
BIG = "x" * 300 * KIB


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


async def test_an_event_completes_the_step_that_waits(store: Store, shard: Shard) -> None:
    run_id = await start(store, waiting("plain"))
    run = await waits(store, run_id)
    seq = await send(store, "plain", {"id": 7})

    assert run.steps["w"].waits_for is not None
    assert await result(store, run_id) == {"id": 7}
    assert await received(store, run_id) == [seq]
    await until_true(lambda: shard.waits.in_memory == 0)


async def test_a_step_shows_what_it_waits_for_while_it_does(store: Store, shard: Shard) -> None:
    run_id = await start(store, waiting("shown", correlate={"field": "id", "value": "${{ input }}"}), b"7")
    before = view(await waits(store, run_id), {}).steps["w"]
    await send(store, "shown", {"id": 7})
    after = view(await ended(store, run_id), {}).steps["w"]

    assert (before.status, before.waits_for) == ("running", WaitView("shown.paid", Correlation("id", Raw(b"7"))))
    assert (after.status, after.waits_for) == ("completed", UNSET)


async def test_each_run_gets_the_event_with_its_value(store: Store, shard: Shard) -> None:
    document = waiting("many", correlate={"field": "order.id", "value": "${{ input.id }}"})
    runs = {n: await start(store, document, b'{"id":%d}' % n) for n in range(50)}
    for run_id in runs.values():
        await waits(store, run_id)
    await send(store, "many", {"order": {"id": "1"}})
    await send(store, "many", "text")
    await store.events.publish("event.many.paid", b"no json")
    for n in reversed(runs):
        await send(store, "many", {"order": {"id": n}, "n": n})

    assert [await result(store, run_id) for run_id in runs.values()] == [{"order": {"id": n}, "n": n} for n in runs]
    assert [len(await received(store, run_id)) for run_id in runs.values()] == [1] * 50


async def test_one_event_completes_all_who_wait_for_it(store: Store, shard: Shard) -> None:
    runs = [await start(store, waiting("all")) for _ in range(5)]
    for run_id in runs:
        await waits(store, run_id)
    await send(store, "all", "for all")

    assert [await result(store, run_id) for run_id in runs] == ["for all"] * 5


async def test_an_event_that_comes_before_the_engine_looks_counts(
    store: Store, broker_settings: BrokerSettings
) -> None:
    run_id = await start(store, waiting("early", timeout="1s"))
    await send(store, "early", 1)
    await send(store, "early", 2)
    await store.events.publish("event.early.other", b"3")
    [first] = [decode(one.data) for one in await store.history.read(run_id)]
    assert isinstance(first, WorkflowStarted)

    async with open_store(broker_settings, "late") as own, open_shard(own, new_member("shard")):
        assert await result(store, run_id) == 1


async def test_an_older_event_counts_only_with_lookback(store: Store, shard: Shard) -> None:
    await send(store, "older", "old")
    await send(store, "older", "not so old")
    plain = await start(store, waiting("older"))
    back = await start(store, waiting("older", lookback="1h"))

    assert await result(store, back) == "old"
    await waits(store, plain)
    await send(store, "older", "new")
    assert await result(store, plain) == "new"


async def test_a_step_that_an_older_event_completes_ends_when_its_run_learns_of_it(store: Store, shard: Shard) -> None:
    await send(store, "before", "old")

    run = await ended(store, await start(store, waiting("before", lookback="1h")))

    step = run.steps["w"]
    times = [run.created_at, step.started_at, step.finished_at, run.finished_at]
    assert (RunStatus.COMPLETED, sorted(map(str, times))) == (run.status, times)


async def test_with_lookback_what_completed_an_ancestor_is_passed_over(store: Store, shard: Shard) -> None:
    document = waiting("chain", lookback="1h")
    config = {"event": "chain.paid", "lookback": "1h"}
    second = {"id": "x", "type": "wait_for_event", "depends_on": ["w"], "config": config}
    await send(store, "chain", "first")
    await send(store, "chain", "second")

    run_id = await start(store, {**document, "steps": [*document["steps"], second]})  # type: ignore[misc]

    assert await result(store, run_id, "w") == "first"
    assert await result(store, run_id, "x") == "second"


async def test_the_condition_reads_event_input_and_steps(store: Store, shard: Shard) -> None:
    match = "event.sum >= input.least && event.of == steps.a.output.name"
    config = {"event": "match.paid", "match": match}
    steps = [
        {"id": "a", "task": "match.a"},
        {"id": "w", "type": "wait_for_event", "depends_on": ["a"], "config": config},
    ]
    given = {"least": 10, "name": "ann", "big": BIG}
    async with echo(store, "match.a"):
        run_id = await start(store, {"name": "match", "steps": steps}, orjson.dumps(given))
        await waits(store, run_id)
    for event in ({"sum": 9, "of": "ann"}, {"sum": 10, "of": "bob"}, {}, None, {"sum": 11, "of": "ann"}):
        await send(store, "match", event)

    assert await result(store, run_id) == {"sum": 11, "of": "ann"}
    assert len(await received(store, run_id)) == 1


async def test_a_burst_for_one_wait_is_looked_at_in_order(store: Store, shard: Shard) -> None:
    run_id = await start(store, waiting("burst", match="event.n >= 700"))
    await waits(store, run_id)
    await asyncio.gather(*(store.events.publish("event.burst.paid", b'{"n":%d}' % n) for n in range(1000)))

    found = await result(store, run_id)
    stored = [orjson.loads(one.data) async for page in store.events.stored("event.burst.paid", 1) for one in page]
    assert found == next(event for event in stored if event["n"] >= 700)
    assert len(await received(store, run_id)) == 1


async def test_without_an_event_in_time_the_step_fails(store: Store, shard: Shard) -> None:
    run_id = await start(store, waiting("late", timeout="200ms", correlate={"field": "id", "value": 1}))
    await send(store, "late", {"id": 2})

    run = await ended(store, run_id)

    assert run.error == 'step "w" failed: no event late.paid came within 200ms'
    assert run.steps["w"].attempts == 1


async def test_it_goes_on_without_an_event_where_it_may(store: Store, shard: Shard) -> None:
    run_id = await start(store, waiting("goes_on", timeout="200ms", on_timeout="continue"))

    run = await ended(store, run_id)

    assert (run.status, run.steps["w"].status) == (RunStatus.COMPLETED, StepStatus.COMPLETED)


async def test_an_event_that_was_in_time_wins_over_the_timer(store: Store, broker_settings: BrokerSettings) -> None:
    async with open_store(broker_settings, "first") as own, open_shard(own, new_member("shard")):
        run_id = await start(store, waiting("in_time", timeout="1s"))
        run = await waits(store, run_id)
    await send(store, "in_time", "in time")
    wait = run.steps["w"].waits_for
    assert wait is not None
    assert wait.until is not None
    while (await store.events.tip()).now <= wait.until:
        await send(store, "in_time", "not the first")

    async with open_store(broker_settings, "second") as own, open_shard(own, new_member("shard")):
        assert await result(store, run_id) == "in time"


async def test_a_wait_that_has_ended_leaves_nothing_behind(store: Store, shard: Shard) -> None:
    from penstock.actors.control import run_operations

    before = await records(store)
    runs = [await start(store, waiting("gone", timeout="1h")) for _ in range(3)]
    for run_id in runs:
        await waits(store, run_id)
    assert await records(store) == before + 3
    await run_operations.cancel(store, runs[0], None)
    await send(store, "gone", 1)
    for run_id in runs:
        await ended(store, run_id)
    await until_true(lambda: shard.waits.in_memory == 0)

    assert await records(store) == before


async def test_a_body_that_is_too_large_fails_the_step(store: Store, shard: Shard) -> None:
    run_id = await start(store, waiting("large"))
    await waits(store, run_id)
    await store.events.publish("event.large.paid", orjson.dumps("x" * 2 * MIB))

    run = await ended(store, run_id)

    assert run.error is not None
    assert f"has {2 * MIB + 2} bytes, {MIB} is the most: send less" in run.error


async def test_a_large_body_becomes_the_output(store: Store, shard: Shard) -> None:
    run_id = await start(store, waiting("big"))
    await waits(store, run_id)
    await send(store, "big", BIG)

    assert await result(store, run_id) == BIG


async def test_the_example_of_the_documentation_waits_for_its_payment(store: Store, shard: Shard) -> None:
    """As docs/workflows.md shows it."""
    page = (ROOT / "docs" / "workflows.md").read_text().partition("## Waits for events")[2]
    document = orjson.loads(page.partition("```json")[2].partition("```")[0])

    async def reserve(worker: Echo, task: TaskPayload) -> None:
        await worker.complete(task, b'{"price": 20}')

    async with echo(store, "reserve", reserve), echo(store, "ship") as shipping:
        run_id = await start(store, document, b'{"order_id": 7}')
        await waits(store, run_id, "paid")
        for order, amount in ((8, 20), (7, 19.99), (7.0, 20), (7, 30)):
            body = {"order": {"id": order}, "amount": amount}
            await store.events.publish("event.payment.received", orjson.dumps(body))
        assert await result(store, run_id, "paid") == {"order": {"id": 7.0}, "amount": 20}

    assert len(shipping.seen) == 1


async def test_without_waits_nothing_reads_the_events(store: Store, shard: Shard) -> None:
    async def readers() -> set[str]:
        return set((await store.broker.api("CONSUMER.NAMES.EVENTS"))["consumers"] or ())

    before = await readers()  # of other tests, which the broker removes soon
    async with echo(store, "without.echo"):
        await ended(store, await start(store, chain("without")))

    assert await readers() <= before
