"""What one run cannot digest stays its own trouble: it is kept as a dead letter, and the other runs of its partition go
on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.runs import actor_state, loading, run_actor
from penstock.actors.runs.loading import LoadedRun, load_many
from penstock.actors.runs.shard import Shard
from penstock.broker import names, record_keys
from penstock.broker.nats.publisher import ack_seq
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.limits import EVENT_FAILURES_MAX
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict
from penstock.engine.run.commands import Command
from penstock.engine.run.events import Record, StepCompleted, WorkflowFailed, decode
from penstock.engine.run.state import Run, RunStatus, StepStatus
from penstock.engine.run.workflow import Workflow
from penstock.engine.times import rfc3339
from tests.support.waiting import until, until_true
from tests.support.world import chain, echo, ended, register, start

STRANGE = [
    b"",
    b"\xff\xfe",
    b"null",
    b"[]",
    b"[" * 100_000,
    b'{"type":"step.completed","run_id":"\xff","step_id":"s0"}',
    b'{"type":"step.completed","step_id":"s0"}',
    b'{"type":"step.completed","run_id":7,"step_id":"s0"}',
    b'{"type":"step.completed","run_id":"another","step_id":"s0","payload":1}',
    b'{"type":"step.completed","run_id":"another","step_id":"s0","attempt_number":1e999}',
    b'{"type":"step.vanished","run_id":"another","step_id":"s0"}',
    b'{"type":"workflow.completed"',
]


@pytest.fixture
async def shard(store: Store, broker_settings: BrokerSettings) -> AsyncIterator[Shard]:
    async with open_store(broker_settings, "shard") as own, open_shard(own, new_member("shard")) as opened:
        yield opened


async def neighbours(store: Store, name: str) -> tuple[str, str]:
    """Two runs of one partition: the second is started once the first one's task is there."""
    first = await start(store, chain(name, 1))
    await until(lambda: store.reader.one(names.TASKS, names.task_subject(f"{name}.echo", first)))
    while True:
        second = await start(store, chain(name, 1))
        if names.partition(first) == names.partition(second):
            return first, second


async def dead_lettered(store: Store, run_id: str, count: int) -> list[bytes]:
    """The run's dead letters, once there are so many."""

    async def find() -> list[bytes]:
        found = [one.data for one in await store.reader.subject(names.DEAD, names.dead_history_subject(run_id))]
        return found if len(found) >= count else []

    return await until(find)


async def test_bytes_of_all_kinds_in_a_history_stop_neither_its_run_nor_another(store: Store, shard: Shard) -> None:
    run_id, other = await neighbours(store, "strange")
    for body in STRANGE:
        await store.publisher.send(names.history_subject(run_id), body)
    async with echo(store, "strange.echo"):
        runs = [await ended(store, one) for one in (run_id, other)]
    assert [run.status for run in runs] == [RunStatus.COMPLETED] * 2
    assert await dead_lettered(store, run_id, len(STRANGE)) == STRANGE


async def test_an_event_is_not_acknowledged_before_its_dead_letter_is_stored(
    store: Store, shard: Shard, broker_settings: BrokerSettings
) -> None:
    """A shard that dies meanwhile has it delivered again."""
    run_id = await start(store, chain("not_yet_stored", 1))
    queue = shard._queues[names.partition(run_id)]
    await store.broker.api(f"STREAM.DELETE.{names.DEAD}")
    seq = ack_seq(await store.publisher.send(names.history_subject(run_id), b"[]"))
    await until_true(lambda: seq in queue.dead_letters)
    async with echo(store, "not_yet_stored.echo"):
        await ended(store, run_id)
    await until_true(lambda: all(event.handled for event in queue.events))
    await shard._acknowledge_queue(names.partition(run_id), queue, float("inf"))
    assert queue.start == seq
    await provision(store.broker, broker_settings)
    assert [b"[]"] == await dead_lettered(store, run_id, 1)
    await until_true(lambda: not queue.dead_letters)
    await shard._acknowledge_queue(names.partition(run_id), queue, float("inf"))
    assert queue.start > seq


async def test_a_dead_letter_that_is_refused_is_kept_once_it_is_not(store: Store, shard: Shard) -> None:
    run_id = await start(store, chain("refused", 1))
    queue = shard._queues[names.partition(run_id)]
    await limited(store, 1)
    seq = ack_seq(await store.publisher.send(names.history_subject(run_id), b"[]"))
    await until_true(lambda: seq in queue.dead_letters)
    async with echo(store, "refused.echo"):
        await ended(store, run_id)
    await until_true(lambda: all(event.handled for event in queue.events))
    await shard._acknowledge_queue(names.partition(run_id), queue, float("inf"))
    assert queue.start == seq
    await limited(store, -1)
    assert [b"[]"] == await dead_lettered(store, run_id, 1)
    await until_true(lambda: not queue.dead_letters)


async def test_an_event_that_leaves_no_room_for_the_headers_of_a_dead_letter_is_kept_without_its_end(
    store: Store, shard: Shard
) -> None:
    run_id = await start(store, chain("whole", 1))
    body = b"[" + b" " * (store.broker.max_payload - 100)
    await store.broker.request(names.history_subject(run_id), body)
    [kept] = await dead_lettered(store, run_id, 1)
    assert body[: store.publisher.body_bytes_max] == kept
    [kept_letter] = (await store.dead_letters.page(run_id)).dead_letters
    assert kept_letter.error.endswith(f"(of its {len(body)} bytes, the first {len(kept)} are kept here)")


async def limited(store: Store, bytes_max: int) -> None:
    """Have the stream of dead letters refuse every message that is larger."""
    config = (await store.broker.api(f"STREAM.INFO.{names.DEAD}"))["config"]
    await store.broker.api(f"STREAM.UPDATE.{names.DEAD}", {**config, "max_msg_size": bytes_max})


async def test_an_event_at_which_the_engine_fails_is_a_dead_letter_and_changes_nothing(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = loading.advance

    def fails(workflow: Workflow, run: Run | None, record: Record) -> tuple[Run | None, list[Command]]:
        if isinstance(record.event, StepCompleted) and record.event.payload == Raw(b'"poison"'):
            raise ZeroDivisionError
        return advance(workflow, run, record)

    monkeypatch.setattr(loading, "advance", fails)
    run_id, other = await neighbours(store, "bug")
    poison = StepCompleted(run_id=run_id, step_id="s0", attempt_number=1, payload=Raw(b'"poison"'))
    await store.history.append(poison, message_id="poison")
    [dead_letter] = await dead_lettered(store, run_id, 1)
    assert b"poison" in dead_letter
    before = await run_operations.get(store, run_id)
    assert (before.status, before.steps["s0"].status) == (RunStatus.RUNNING, StepStatus.QUEUED)
    async with echo(store, "bug.echo"):
        runs = [await ended(store, one) for one in (run_id, other)]
    assert [run.status for run in runs] == [RunStatus.COMPLETED] * 2
    assert len(await dead_lettered(store, run_id, 1)) == 1


@pytest.mark.parametrize("left", [None, b"no definition"], ids=["removed", "written over"])
async def test_a_run_without_its_definition_stands_still_and_the_others_go_on(
    store: Store, broker_settings: BrokerSettings, monkeypatch: pytest.MonkeyPatch, left: bytes | None
) -> None:
    monkeypatch.setattr(actor_state, "EVENTS_MIN", 0)  # it is shown by its snapshot
    name = "gone" if left is None else "spoilt"
    async with open_store(broker_settings, "first") as own, open_shard(own, new_member("shard")):
        run_id = await start(store, chain(name, 2))
        await until(lambda: store.reader.one(names.TASKS, names.task_subject(f"{name}.echo", run_id)))
    _, digest = await register(store, chain(name, 2))
    bucket = store.bucket(names.DEFINITIONS)
    if left is None:
        await bucket.delete(record_keys.definition_key(name, digest))
    else:
        await bucket.put(record_keys.definition_key(name, digest), left)
    async with (
        open_store(broker_settings, "second") as own,
        open_shard(own, new_member("shard")),
        echo(own, f"{name}.echo"),
    ):
        letters = await dead_lettered(store, run_id, 2)
        other = await start(own, chain(f"{name}.other", 1))
        async with echo(own, f"{name}.other.echo"):
            await ended(own, other)
        listed = {run.run_id: run.status for run in await load_many(own, [run_id, other])}
        await own.history.append(WorkflowFailed(run_id=run_id))
    assert len(letters) == 2
    assert listed == {run_id: RunStatus.RUNNING, other: RunStatus.COMPLETED}


async def test_a_failed_run_without_its_definition_cannot_go_on_and_says_so(
    store: Store, broker_settings: BrokerSettings
) -> None:
    async with open_store(broker_settings, "first") as own, open_shard(own, new_member("shard")):
        run_id = await start(own, {**chain("late", 1), "timeout": "10ms"})
        await ended(own, run_id)
    _, digest = await register(store, {**chain("late", 1), "timeout": "10ms"})
    await store.bucket(names.DEFINITIONS).delete(record_keys.definition_key("late", digest))
    async with open_store(broker_settings, "second") as own:
        with pytest.raises(Conflict, match=f"run {run_id} cannot go on, its definition is not in the store"):
            await run_operations.replay(own, run_id)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_start_that_comes_while_its_actor_gives_up_is_not_given_up(
    store: Store, shard: Shard, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    definition, digest = await register(store, chain("late", 1))
    run_id, tries = new_run_id(), 0
    last_look, go_on = asyncio.Event(), asyncio.Event()
    read = run_actor.load

    async def slow(*given: Any, **more: Any) -> LoadedRun:
        nonlocal tries
        found, tries = await read(*given, **more), tries + 1
        if tries == (EVENT_FAILURES_MAX if fails else 1):
            last_look.set()
            await go_on.wait()
        if fails and tries <= EVENT_FAILURES_MAX:
            raise ZeroDivisionError("a bug")
        return found

    monkeypatch.setattr(run_actor, "load", slow)
    early = StepCompleted(run_id=run_id, step_id="another", attempt_number=1, worker_id="w")
    await store.history.append(early)
    await last_look.wait()
    await store.history.append(run_operations.started(run_id, definition, digest, Raw(b"1"), rfc3339(time.time())))
    await until_true(lambda: len(shard.actors[run_id]._pending) == 2)
    go_on.set()
    async with echo(store, "late.echo"):
        assert (await ended(store, run_id)).status is RunStatus.COMPLETED
    assert [decode(body) for body in await dead_lettered(store, run_id, 1)] == [early]
