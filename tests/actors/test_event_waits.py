"""Waits for events in a real shard: events that come early, late, in bursts, and while nobody looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import orjson
import pytest
from msgspec import UNSET, Raw

from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.loading import load
from penstock.actors.runs.outputs import output_of
from penstock.actors.runs.shard import Shard
from penstock.actors.runs.waits.checkpoints import checkpoint_of, seen_by
from penstock.actors.runs.waits.wait_index import OpenWait
from penstock.broker import names
from penstock.broker.nats.direct import Stored
from penstock.broker.records.event_waits import SeenBy, WaitCheckpoint, WaitRecord
from penstock.broker.store import Store, open_store
from penstock.broker.streams.events import EventsTip
from penstock.broker.worker_messages import TaskPayload
from penstock.client.views import WaitView
from penstock.config.limits import KIB, MIB
from penstock.config.settings import BrokerSettings
from penstock.engine.run.events import Correlation, EventReceived, EventWait, WorkflowStarted, decode
from penstock.engine.run.state import Run, RunStatus, StepStatus
from penstock.http.messages.views import view
from tests.support.waiting import until_true
from tests.support.world import Echo, chain, echo, ended, start

ROOT = Path(__file__).parents[2]
BIG = "x" * 300 * KIB


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


def waiting(name: str, **config: object) -> dict[str, object]:
    """A workflow that waits for an event of its own name, so that tests do not meet in the stream of events."""
    step = {"id": "w", "type": "wait_for_event", "config": {"event": f"{name}.paid", **config}}
    return {"name": name, "steps": [step]}


async def send(store: Store, name: str, body: object) -> int:
    return await store.events.publish(f"event.{name}.paid", orjson.dumps(body))


async def waits(store: Store, run_id: str, step_id: str = "w") -> Run:
    """The run's state once the step waits."""
    async with asyncio.timeout(20):
        async for _ in store.history.follow(run_id):
            run = (await load(store, run_id)).run
            if run is not None and run.steps[step_id].status is StepStatus.RUNNING:
                return run
    raise AssertionError("unreachable")


async def result(store: Store, run_id: str, step_id: str = "w") -> object:
    run = await ended(store, run_id)
    assert run.status is RunStatus.COMPLETED, run.error
    return orjson.loads(bytes(await output_of(store, run, step_id)))


async def received(store: Store, run_id: str) -> list[int]:
    """The sequences of all events that the run has received."""
    events = [decode(one.data) for one in await store.history.read(run_id)]
    return [event.payload.seq for event in events if isinstance(event, EventReceived)]


async def records(store: Store) -> int:
    return len(await store.event_waits._bucket.all())


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


async def test_a_new_owner_finds_what_came_while_nobody_looked(store: Store, broker_settings: BrokerSettings) -> None:
    document = waiting("moved", correlate={"field": "id", "value": "${{ input }}"})
    async with open_store(broker_settings, "first") as own, open_shard(own, new_member("shard")):
        runs = [await start(store, document, b"%d" % n) for n in range(20)]
        for run_id in runs:
            await waits(store, run_id)
        await send(store, "moved", {"id": 0})
        assert await result(store, runs[0]) == {"id": 0}
    for n in range(1, 10):
        await send(store, "moved", {"id": n})
    assert await records(store) >= 19
    async with open_store(broker_settings, "second") as own, open_shard(own, new_member("shard")):
        for n in range(10, 20):
            await send(store, "moved", {"id": n})
        assert [await result(store, run_id) for run_id in runs[1:]] == [{"id": n} for n in range(1, 20)]


class Life:
    """A shard that dies, or hands over. `read` are the sequences of the events that it has read, from before its
    time."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self.read: list[int] = []

    @asynccontextmanager
    async def lived(self, *, dies: bool = True) -> AsyncIterator[Shard]:
        async with open_store(self._settings, "shard") as own:
            stored = own.events.stored

            async def counted(subject: str, from_seq: int) -> AsyncGenerator[list[Stored]]:
                async for page in stored(subject, from_seq):
                    self.read += [one.seq for one in page]
                    yield page

            own.events.stored = counted  # type: ignore[method-assign]
            async with open_shard(own, new_member("shard")) as shard:
                yield shard
                if dies:
                    shard.lease.end()


async def at_rest(shard: Shard) -> None:
    """All waits are in memory, and none has older events to look at any more."""
    found = shard.waits
    await until_true(lambda: found._placed.is_set() and not found._stopped and not any(map(busy, every(shard))))


def every(shard: Shard) -> list[OpenWait]:
    return [waiting for waits_of_one in shard.waits._waits.values() for waiting in waits_of_one.values()]


def busy(waiting: OpenWait) -> bool:
    return waiting.busy


async def save(shard: Shard) -> None:
    """What is done at intervals, now."""
    for partition in list(shard.waits._checkpoints._stored):
        await shard.waits.save(partition)


async def test_after_a_restart_only_events_since_the_checkpoint_are_read(
    store: Store, broker_settings: BrokerSettings
) -> None:
    document = waiting("aged", correlate={"field": "id", "value": "${{ input }}"})
    second, third = Life(broker_settings), Life(broker_settings)
    async with Life(broker_settings).lived(dies=False):  # nothing is to be done again of how the waits began
        runs = [await start(store, document, b"%d" % n) for n in range(40)]
        for run_id in runs:
            await waits(store, run_id)
    async with Life(broker_settings).lived() as shard:
        old = [await send(store, "aged", {"id": -1 - n}) for n in range(200)]
        await until_true(lambda: shard.waits._position >= old[-1] and shard.waits.in_memory >= len(runs))
        await at_rest(shard)
        await save(shard)
        new = [await send(store, "aged", {"id": n}) for n in (-201, 3, -202)]
        await result(store, runs[3])
    while_dead = [await send(store, "aged", {"id": n}) for n in (-203, 5, 7)]
    async with second.lived() as shard:
        assert [await result(store, runs[n]) for n in (5, 7)] == [{"id": 5}, {"id": 7}]
        await at_rest(shard)
        await save(shard)
    async with third.lived() as shard:
        await at_rest(shard)
        for n in range(40):
            await send(store, "aged", {"id": n})
        assert [await result(store, run_id) for run_id in runs] == [{"id": n} for n in range(40)]

    assert set(second.read) == {*new, *while_dead}
    assert len(second.read) <= 2 * len(set(second.read)), "waits of many partitions are looked for together"
    assert third.read == []
    assert [len(await received(store, runs[n])) for n in (3, 5, 7, 9)] == [1] * 4


async def test_a_partition_that_is_handed_over_brings_its_checkpoint(
    store: Store, broker_settings: BrokerSettings
) -> None:
    first, second = Life(broker_settings), Life(broker_settings)
    async with first.lived(dies=False) as shard:
        run_id = await start(store, waiting("handed", match="event > 5"))
        await waits(store, run_id)
        seqs = [await send(store, "handed", 1) for _ in range(50)]
        await until_true(lambda: shard.waits._position >= seqs[-1] and shard.waits.in_memory > 0)
        await at_rest(shard)
    async with second.lived() as shard:
        await at_rest(shard)
        await send(store, "handed", 6)
        assert await result(store, run_id) == 6

    assert second.read == []


async def test_a_wait_that_begins_after_the_checkpoint_looks_back_behind_it(
    store: Store, broker_settings: BrokerSettings
) -> None:
    """The run of such a wait is in the log before the shard begins it; who takes over knows its record only."""
    document = waiting("behind", correlate={"field": "id", "value": "${{ input }}"})
    seq = await send(store, "behind", {"id": 2})
    async with Life(broker_settings).lived() as shard:
        first = await start(store, document, b"1")
        await waits(store, first)
        await until_true(lambda: shard.waits.in_memory > 0)
        await at_rest(shard)
        await save(shard)
    record = WaitRecord(first, "w", 9, EventWait("behind.paid", 0.0, None, Correlation("id", Raw(b"2"))))
    await store.event_waits.send(record)
    last = Life(broker_settings)
    async with last.lived() as shard:
        await until_true(lambda: seq in last.read)
        await until_true(lambda: record.key not in [waiting.record.key for waiting in every(shard)])
        await send(store, "behind", {"id": 1})
        assert await result(store, first) == {"id": 1}
        await store.event_waits.remove(record.key)


async def test_a_checkpoint_of_another_stream_of_events_is_passed_over(
    store: Store, broker_settings: BrokerSettings
) -> None:
    async with Life(broker_settings).lived() as shard:
        run_id = await start(store, waiting("other"))
        await waits(store, run_id)
        await until_true(lambda: shard.waits.in_memory > 0)
        (mark,) = [waiting.mark for waiting in every(shard) if waiting.record.run_id == run_id]
        await send(store, "elsewhere", 1)
    seq = await send(store, "other", "found")
    number = names.partition(run_id)
    tip = await store.events.tip()
    for created, past in (("2020-01-01T00:00:00Z", seq), (tip.created, tip.seq + 1)):
        checkpoint = WaitCheckpoint(created, (SeenBy(past, mark),))
        assert seen_by(checkpoint, tip) == {}
    await store.event_waits.write_checkpoint(number, WaitCheckpoint("2020-01-01T00:00:00Z", (SeenBy(seq, mark),)))
    async with Life(broker_settings).lived():
        assert await result(store, run_id) == "found"


async def test_a_checkpoint_that_cannot_be_read_or_written_stops_nothing(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(number: int, checkpoint: WaitCheckpoint) -> None:
        raise OSError("full")

    async with Life(broker_settings).lived() as shard:
        run_id = await start(store, waiting("torn"))
        await waits(store, run_id)
        await until_true(lambda: shard.waits.in_memory > 0)
        await at_rest(shard)
        monkeypatch.setattr(shard.store.event_waits, "write_checkpoint", fails)
        await save(shard)
    number = names.partition(run_id)
    await store.event_waits._bucket.put(names.wait_checkpoint_key(number), b'{"created":7}')
    assert (await store.event_waits.of_partition(number)).checkpoint is None
    async with Life(broker_settings).lived():
        await send(store, "torn", "found")
        assert await result(store, run_id) == "found"


@pytest.mark.parametrize("seed", range(4))
async def test_each_wait_gets_its_first_event_whenever_shards_die(
    store: Store, broker_settings: BrokerSettings, seed: int
) -> None:
    """Waits begin, events are sent, checkpoints are written and shards die, in any order."""
    chance, name = Random(seed), f"dying{seed}"
    document = waiting(
        name, correlate={"field": "id", "value": "${{ input }}"}, lookback="1h", match="event.n % 2 == 0"
    )
    runs, sent = dict[int, str](), dict[int, list[int]]()
    for _ in range(4):
        async with Life(broker_settings).lived(dies=chance.random() < 0.7) as shard:
            for n in range(25):
                match chance.choice(("start", "send", "send", "save")):
                    case "start" if len(runs) < 20:
                        runs[len(runs)] = await start(store, document, b"%d" % len(runs))
                    case "save":
                        await save(shard)
                    case _:
                        known_by = chance.randrange(20)
                        seq = await send(store, name, {"id": known_by, "n": n})
                        if n % 2 == 0:
                            sent.setdefault(known_by, []).append(seq)
    async with Life(broker_settings).lived():
        for known_by in runs:
            sent.setdefault(known_by, []).append(await send(store, name, {"id": known_by, "n": 0}))
        for run_id in runs.values():
            await result(store, run_id)

    assert {n: await received(store, run_id) for n, run_id in runs.items()} == {n: sent[n][:1] for n in runs}


async def test_a_checkpoint_goes_with_the_last_wait_of_its_partition(store: Store, shard: Shard) -> None:
    run_id = await start(store, waiting("last"))
    await waits(store, run_id)
    await send(store, "elsewhere", 1)
    await until_true(lambda: shard.waits.in_memory > 0)
    await at_rest(shard)
    await save(shard)
    number = names.partition(run_id)
    assert (await store.event_waits.of_partition(number)).checkpoint is not None
    await send(store, "last", 1)
    await ended(store, run_id)
    await until_true(lambda: number not in shard.waits._waits)
    await save(shard)

    assert await store.event_waits.of_partition(number) == ([], None)


def test_a_checkpoint_says_of_a_busy_wait_only_what_it_has_looked_at() -> None:
    idle, new, old = (OpenWait(WaitRecord("r", name, 1, EventWait("e", 0.0))) for name in "abc")
    new.looking = old.looking = True
    old.past = 3
    checkpoint = checkpoint_of([idle, new, old], 7, "then")

    assert checkpoint == WaitCheckpoint("then", (SeenBy(3, old.mark), SeenBy(7, idle.mark)))
    assert seen_by(checkpoint, EventsTip(7, 1.0, 1.0, "then")) == {old.mark: 3, idle.mark: 7}
    assert checkpoint_of([new], 7, "then") is None


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
