"""Why a run waits, by facts that a test holds in its hands: an engine that does not get on, a full storage, a queue of
many types."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any

import pytest
from msgspec import Raw, structs
from uuid_utils import uuid7

from penstock.actors.control.run_operations import begin
from penstock.actors.diagnosis import engine_progress
from penstock.actors.diagnosis.explanation import explanation
from penstock.actors.diagnosis.live_facts import AskedRun, live_facts
from penstock.actors.runs.loading import load
from penstock.broker import names
from penstock.broker.inspection.queue_places import COUNTED_MAX, place_of, queue_progress
from penstock.broker.nats.pull import Delivery, open_pull
from penstock.broker.records.owners import Claim, Handled, Member
from penstock.broker.store import Store
from penstock.engine.access.scopes import EVERYBODY
from penstock.engine.errors import NotFound
from penstock.engine.validation import parse
from penstock.engine.waiting.explain import explain
from penstock.engine.waiting.facts import EngineProgress
from penstock.engine.waiting.reasons import Reason, WaitingReason
from tests.support.waiting import until_true
from tests.worker.task_queue import dispatch


async def _begun(store: Store) -> str:
    definition = parse({"name": "w", "steps": [{"id": "a", "task": "work"}]})
    digest = await store.definitions.register(definition)
    return (await begin(store, definition, digest, Raw(b"null"))).run_id


def _storage(problem: str = "") -> Any:
    async def answer() -> str:
        return problem

    def ask() -> Coroutine[Any, Any, str]:
        return answer()

    return ask


async def _why(store: Store, run_id: str, ahead_s: float = 0.0, storage: str = "") -> dict[Reason, WaitingReason]:
    _, waiting = await explanation(store, run_id, _storage(storage), ahead_s)
    return {one.reason: one for one in waiting}


async def test_a_living_engine_that_does_not_take_the_events_is_behind(store: Store) -> None:
    run_id = await _begun(store)
    assert [Reason.PARTITION_UNOWNED, Reason.NO_WORKER] == list(await _why(store, run_id))
    partition = names.partition(run_id)
    consumer = names.engine_consumer(partition, 1)
    await store.consumers.open(consumer, partition, 1)
    await store.owners.renew(Member("m1", "here"), 0)
    await store.owners.claim(partition, Claim("m1", consumer), 0)
    behind = (await _why(store, run_id, ahead_s=2.0))[Reason.ENGINE_BEHIND]
    assert 1 == behind.details["events"]
    assert 2 <= float(behind.details["seconds"]) < 3
    assert "1 event of this run's partition before it" in behind.text
    assert Reason.ENGINE_BEHIND not in await _why(store, run_id), "it came a moment ago"
    assert Reason.PARTITION_UNOWNED in await _why(store, run_id, ahead_s=10.0), "no heartbeat came since"


async def test_an_engine_that_reads_all_partitions_by_one_consumer_is_behind_with_those_of_the_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_progress, "UNHANDLED_S", 1.0)
    run_id = await _begun(store)
    partition, consumer = names.partition(run_id), names.common_consumer(1)
    while names.partition(await _begun(store)) == partition:
        pass
    last = await store.history.last(run_id)
    assert last is not None
    await store.consumers.open(consumer, None, 1)
    await store.owners.renew(Member("m2", "here"), 0)
    before = (await store.owners.read()).claims.get(partition)
    await store.owners.claim(partition, Claim("m2", consumer), 0 if before is None else before.revision)

    async def events_before() -> int:
        """Those of the partition that this run waits for."""
        behind = (await _why(store, run_id, ahead_s=2.0)).get(Reason.ENGINE_BEHIND)
        return int(str(behind.details["events"])) if behind is not None else 0

    of_partition = await store.history.count_in(partition, 1)
    assert of_partition < await store.history.last_seq()
    assert of_partition == await events_before()
    taken: list[Delivery] = []
    async with open_pull(store.broker, names.HISTORY, consumer, taken.append, batch=100):
        await until_true(lambda: bool(taken) and taken[-1].pending == 0)
    assert of_partition == await events_before(), "delivered, and not handled"
    await store.owners.note_handled({partition: Handled(last.seq + 1, "")})
    assert 0 == await events_before(), "others hold the acknowledgement back"


async def test_a_full_storage_is_named_first(store: Store) -> None:
    found = await _why(store, await _begun(store), storage="the broker's storage is full: 7 of 7 bytes are used")
    assert [Reason.STORAGE_FULL, Reason.PARTITION_UNOWNED, Reason.NO_WORKER] == list(found)
    assert "7 of 7 bytes" in found[Reason.STORAGE_FULL].text


async def test_an_unknown_run_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await _why(store, uuid7().hex)


async def test_a_run_whose_definition_is_lost_says_so(store: Store) -> None:
    run_id = await _begun(store)
    loaded, last = await load(store, run_id), await store.history.last(run_id)
    assert loaded.run is not None
    assert last is not None
    facts = await live_facts(store, AskedRun(None, loaded.run, last, EVERYBODY), _storage(), time.time())
    of_engine = structs.replace(facts, engine=EngineProgress())
    (one,) = explain(None, loaded.run, of_engine)
    assert "register the same one again" in one.text


@pytest.mark.parametrize("mixed", [False, True])
async def test_the_place_of_a_task_is_counted_among_those_of_its_type(store: Store, mixed: bool) -> None:
    task = f"t{uuid7().hex[:12]}"
    for number in range(5):
        await dispatch(store, task, number)
        if mixed:
            await dispatch(store, f"{task}.other")
    last = await dispatch(store, task)
    await _take_one(store, task)
    progress = await queue_progress(store.broker, task)
    (stored,) = await store.reader.subject(names.TASKS, names.task_subject(task, last))
    place = await place_of(store.broker, store.reader, task, None, stored.seq, progress)
    assert progress is not None
    assert (progress.pending, True) == (place.number, place.exact)


async def test_a_place_far_from_the_end_of_a_mixed_queue_is_an_estimate(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.inspection.queue_places.COUNTED_MAX", 2)
    assert COUNTED_MAX > 2
    task = f"t{uuid7().hex[:12]}"
    run_ids = []
    for _ in range(6):
        run_ids.append(await dispatch(store, task))
        await dispatch(store, f"{task}.other")
    await _take_one(store, task)
    (stored,) = await store.reader.subject(names.TASKS, names.task_subject(task, run_ids[3]))
    place = await place_of(store.broker, store.reader, task, None, stored.seq, await queue_progress(store.broker, task))
    assert not place.exact
    assert 1 <= place.number <= 5


async def _take_one(store: Store, task: str) -> None:
    taken: list[Delivery] = []
    async with store.tasks.consume(task, taken.append, batch=1, room=lambda: 1 - len(taken)):
        await until_true(lambda: bool(taken))
