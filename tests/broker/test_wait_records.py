"""The records of steps that wait for events: what a former owner sends late changes nothing."""

from __future__ import annotations

from penstock.broker import names
from penstock.broker.records.event_waits import WaitRecord
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store
from penstock.engine.run.event_payloads import EventWait


async def stored(store: Store, record: WaitRecord) -> list[WaitRecord]:
    found = await store.event_waits.of_partition(names.partition(record.run_id))
    return [one for one in found.records if one.run_id == record.run_id]


async def test_a_record_that_was_removed_does_not_come_back(store: Store) -> None:
    record = WaitRecord(new_run_id(), "w", 1, EventWait("e", 0.0))
    await store.event_waits.send(record)
    await store.event_waits.send(record)
    assert [record] == await stored(store, record)
    await store.event_waits.remove(record.key)
    await store.event_waits.send(record)
    assert [] == await stored(store, record)


async def test_the_next_attempt_of_a_step_has_a_record_of_its_own(store: Store) -> None:
    first = WaitRecord(new_run_id(), "w", 1, EventWait("e", 0.0))
    second = WaitRecord(first.run_id, "w", 2, EventWait("e", 0.0))
    await store.event_waits.send(first)
    await store.event_waits.remove(first.key)
    await store.event_waits.send(second)
    assert [second] == await stored(store, first)
