"""Runs whose outputs are large: they complete, and neither their snapshots nor their actors hold what the history
has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256

import orjson
import pytest
from msgspec import Raw

from penstock.actors.control import retry, run_operations
from penstock.actors.control.rerunning import Definition
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs.loading import load
from penstock.actors.runs.outputs import input_of, output_of, shown
from penstock.actors.runs.shard import Shard
from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.broker.worker_messages import TaskPayload
from penstock.config.limits import KIB, MIB, PAYLOAD_BYTES_MAX
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import NotFound
from penstock.engine.run.events import WorkflowCompleted, decode
from penstock.engine.run.payloads import PayloadRef
from penstock.engine.run.state import Run, RunStatus, from_snapshot, to_snapshot
from tests.support.waiting import until, until_true
from tests.support.world import Echo, chain, echo, ended, register, start

STEPS = 100
ALL = {"id": "all", "task": "all", "depends_on": ["a", "b"]}


def output(step_id: str, size: int = PAYLOAD_BYTES_MAX) -> bytes:
    """A JSON text of that many bytes, another one for each step."""
    return b'"' + (sha256(step_id.encode()).hexdigest().encode() * (size // 64 + 1))[: size - 2] + b'"'


async def large(worker: Echo, task: TaskPayload) -> None:
    await worker.complete(task, output(task.step_id))


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


async def end(store: Store, run_id: str) -> WorkflowCompleted:
    """The last event of the run."""
    event = decode((await store.history.read(run_id))[-1].data)
    assert isinstance(event, WorkflowCompleted)
    return event


async def test_a_hundred_steps_of_a_mebibyte_each_complete_across_a_change_of_owner(
    store: Store, broker_settings: BrokerSettings
) -> None:
    received: dict[str, bytes] = {}

    async def check(worker: Echo, task: TaskPayload) -> None:
        received[task.step_id] = sha256(bytes(task.input)).digest()
        await large(worker, task)

    async with echo(store, "long.echo", check) as worker:
        async with open_store(broker_settings, "first") as own, open_shard(own, new_member("shard")) as shard:
            run_id = await start(store, chain("long", STEPS))
            await until_true(lambda: len(worker.seen) > STEPS // 2)
            held = shard.actors[run_id].run
            assert held is not None
            assert len(to_snapshot(held)) < 64 * KIB
        between = await load(store, run_id)
        async with open_store(broker_settings, "second") as own, open_shard(own, new_member("shard")):
            run = await ended(store, run_id, 60)
    assert between.revision > 0
    assert between.run is not None
    assert not between.run.ended
    assert run.status is RunStatus.COMPLETED
    assert received == {"s0": sha256(b"null").digest()} | {
        f"s{n}": sha256(output(f"s{n - 1}")).digest() for n in range(1, STEPS)
    }
    assert bytes((await end(store, run_id)).payload.output) == output(f"s{STEPS - 1}")
    entry = await store.runs.get(run_id)
    assert entry is not None
    assert len(entry.value) < 64 * KIB


async def test_a_run_with_more_output_than_a_message_holds_completes_and_says_how_much(
    store: Store, shard: Shard
) -> None:
    document = {"name": "wide", "steps": [{"id": f"s{n}", "task": "wide"} for n in range(12)]}
    async with echo(store, "wide", large):
        run_id = await start(store, document)
        run = await ended(store, run_id)
    assert run.status is RunStatus.COMPLETED
    assert (await end(store, run_id)).payload.output_bytes > 12 * MIB
    assert bytes(await output_of(store, run, "s7")) == output("s7")
    assert len(await shown(store, [run])) == 8


async def test_a_step_receives_several_large_outputs_as_one_object(store: Store, shard: Shard) -> None:
    answers = {"a": output("a"), "b": b"[1]", "all": output("all", 100 * KIB)}
    inputs: dict[str, object] = {}

    async def answer(worker: Echo, task: TaskPayload) -> None:
        inputs[task.step_id] = orjson.loads(bytes(task.input))
        await worker.complete(task, answers[task.step_id])

    document = {"name": "join", "steps": [{"id": "a", "task": "part"}, {"id": "b", "task": "part"}, ALL]}
    async with echo(store, "part", answer), echo(store, "all", answer):
        run_id = await start(store, document, b'"given"')
        await ended(store, run_id)
    assert inputs == {"a": "given", "b": "given", "all": {"a": orjson.loads(answers["a"]), "b": [1]}}
    assert bytes((await end(store, run_id)).payload.output) == answers["all"]


async def test_a_large_input_and_output_that_hundreds_of_steps_share_reach_each_of_them(
    store: Store, shard: Shard
) -> None:
    wide = [{"id": f"s{n}", "task": "each", "depends_on": ["first"]} for n in range(100)]
    document = {"name": "fan", "steps": [{"id": "first", "task": "first"}, *wide]}
    sizes = set()

    async def count(worker: Echo, task: TaskPayload) -> None:
        sizes.add(len(bytes(task.input)))
        await worker.complete(task, b"1")

    async with echo(store, "first", large), echo(store, "each", count) as worker:
        run = await ended(store, await start(store, document, output("input")), 60)
    assert run.status is RunStatus.COMPLETED
    assert (len(worker.seen), sizes) == (100, {PAYLOAD_BYTES_MAX})


async def test_a_run_whose_output_was_trimmed_from_the_history_fails_and_names_it(store: Store, shard: Shard) -> None:
    document = {"name": "trimmed", "steps": [{"id": "a", "task": "part.a"}, {"id": "b", "task": "part.b"}, ALL]}
    async with echo(store, "part.a", large):
        run_id = await start(store, document)
        place = await until(lambda: kept(store, shard, run_id, "a"))
    assert place is not None
    await store.broker.api(f"STREAM.MSG.DELETE.{names.HISTORY}", {"seq": place.seq})
    async with echo(store, "part.b"):
        run = await ended(store, run_id)
    assert run.status is RunStatus.FAILED
    gone = f"event {place.seq} of the history, with {place.size} bytes, is not there any more"
    assert run.error == f'the run cannot go on: step "all" cannot be given its input: {gone}'
    assert await shown(store, [run]) == {}
    with pytest.raises(NotFound, match=f"event {place.seq} of the history"):
        await output_of(store, run, "a")


async def kept(store: Store, shard: Shard, run_id: str, step_id: str) -> PayloadRef | None:
    """Where the run's snapshot says that the output is."""
    if run_id in shard.actors:
        shard.actors[run_id].save_soon()
    entry = await store.runs.get(run_id)
    return None if entry is None else from_snapshot(entry.value).steps[step_id].output_at


async def test_a_failing_step_with_a_large_input_leaves_a_dead_letter_with_all_of_it(
    store: Store, shard: Shard
) -> None:
    async def fail(worker: Echo, task: TaskPayload) -> None:
        await worker.fail(task, "no luck", "non_retriable")

    document = {
        "name": "letter",
        "steps": [{"id": "a", "task": "first"}, {"id": "b", "task": "fails", "depends_on": ["a"]}],
    }
    async with echo(store, "first", large), echo(store, "fails", fail):
        run = await ended(store, await start(store, document))
    assert run.error == 'step "b" failed: no luck'
    [dead_letter] = await store.reader.subject(names.DEAD, names.dead_subject("fails", run.run_id, "b"))
    assert orjson.loads(dead_letter.data)["input"] == orjson.loads(output("a"))


async def test_a_failed_run_goes_on_with_the_large_outputs_that_it_had(store: Store, shard: Shard) -> None:
    failed: list[Raw] = []

    async def fail_once(worker: Echo, task: TaskPayload) -> None:
        failed.append(task.input)
        if len(failed) == 1:
            await worker.fail(task, "no luck", "non_retriable")
        else:
            await worker.complete(task, b"1")

    document = {
        "name": "resumed",
        "steps": [{"id": "a", "task": "first"}, {"id": "b", "task": "once", "depends_on": ["a"]}],
    }
    async with echo(store, "first", large), echo(store, "once", fail_once):
        run_id = await start(store, document)
        await ended(store, run_id)
        await run_operations.replay(store, run_id)
        run = await completed(store, run_id)
    assert run.status is RunStatus.COMPLETED
    assert [bytes(one) for one in failed] == [output("a")] * 2


async def test_a_rerun_has_the_large_input_of_the_run_before_or_says_that_it_is_gone(
    store: Store, shard: Shard
) -> None:
    document = {**chain("again", 1), "timeout": "20ms"}
    definition, digest = await register(store, document)
    latest = retry.with_latest(store, Definition(definition, digest, None))
    run_id = await start(store, document, output("input"))
    first = await ended(store, run_id)
    done = await retry.rerun(store, definition.name, retry.Plan([run_id]), latest, dry_run=False)
    [again] = [retry.new_run_id for retry in done.retried]
    assert again is not None
    assert bytes(await input_of(store, await run_operations.get(store, again))) == output("input")
    assert first.input_at is not None
    await until(lambda: store.runs.get(run_id))
    await store.broker.api(f"STREAM.MSG.DELETE.{names.HISTORY}", {"seq": first.input_at.seq})
    gone = await retry.rerun(store, definition.name, retry.Plan([run_id]), latest, dry_run=False)
    assert (gone.retried, [skipped.run_id for skipped in gone.skipped]) == ([], [run_id])
    assert gone.skipped[0].reason == f"the input of run {run_id} is not there any more: give one"


async def completed(store: Store, run_id: str) -> Run:
    async for _ in store.history.follow(run_id):
        run = (await load(store, run_id)).run
        if run is not None and run.status is RunStatus.COMPLETED:
            return run
    raise AssertionError("unreachable")
