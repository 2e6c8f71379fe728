"""Key-value buckets: what is written is read, and nothing is overwritten by accident."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from uuid_utils import uuid7

from penstock.broker import names
from penstock.broker.nats.buckets import Bucket, Entry
from penstock.broker.nats.direct import KEYS_MAX
from penstock.broker.nats.publisher import Publisher
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, PenstockError, Unavailable
from tests.support.own_broker import own_broker


@pytest.fixture
def bucket(store: Store) -> Bucket:
    return store.checkpoints


@pytest.fixture
def key() -> str:
    return uuid7().hex


async def put_many(bucket: Bucket, key: str, count: int) -> list[str]:
    keys = [f"{key}.{n:04}" for n in range(count)]
    await asyncio.gather(*(bucket.send(one, one.encode()) for one in keys))
    return keys


async def read(bucket: Bucket, key: str) -> tuple[str, bytes, int] | None:
    entry = await bucket.get(key)
    return None if entry is None else (entry.key, entry.value, entry.revision)


async def test_a_key_that_was_put_is_got_with_its_revision(bucket: Bucket, key: str) -> None:
    revision = await bucket.put(key, b"value")
    assert (key, b"value", revision) == await read(bucket, key)


@pytest.mark.usefixtures("store")
async def test_a_write_whose_answer_was_lost_does_not_conflict_with_itself(
    broker_settings: BrokerSettings, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, lost = Publisher._answered, list[bytes]()

    def lose_the_first(self: Publisher, subject: bytes, *rest: bytes) -> None:
        if subject in lost:
            answered(self, subject, *rest)
        lost.append(subject)

    monkeypatch.setattr(Publisher, "_answered", lose_the_first)
    monkeypatch.setattr("penstock.broker.nats.publisher.RESEND_S", 0.1)
    async with open_store(broker_settings, "test") as store:
        bucket = store.checkpoints
        revision = await bucket.put(key, b"1", 0)
        assert revision == (await bucket.find(key))[1]
        assert await bucket.put(key, b"2", revision) > revision
        with pytest.raises(Conflict):
            await bucket.put(key, b"3", revision)
        assert (key, b"2") == ((await read(bucket, key)) or ("", b""))[:2]
        await bucket.delete(key, (await bucket.find(key))[1])


async def test_an_empty_value_is_a_value(bucket: Bucket, key: str) -> None:
    revision = await bucket.put(key, b"")
    assert (key, b"", revision) == await read(bucket, key)


async def test_an_entry_has_the_brokers_time_of_its_write(bucket: Bucket, key: str) -> None:
    """In every read alike, and a later write a later one."""
    times = []
    for _ in range(2):
        await bucket.put(key, b"value")
        entries = [await bucket.get(key), (await bucket.find(key))[0], *(await bucket.all(key))]
        entries += (await bucket.get_many([key])).values()
        times.append({entry.at for entry in entries if entry is not None})
    assert [1, 1] == [len(each) for each in times]
    assert 1e9 < min(times[0]) < min(times[1])


async def test_a_key_that_was_never_put_is_none(bucket: Bucket, key: str) -> None:
    assert await bucket.get(key) is None


async def test_the_last_value_wins(bucket: Bucket, key: str) -> None:
    first, second = await bucket.put(key, b"1"), await bucket.put(key, b"2")
    assert first < second
    assert (key, b"2", second) == await read(bucket, key)


async def test_only_one_of_many_makers_of_a_key_succeeds(bucket: Bucket, key: str) -> None:
    results = await asyncio.gather(*(bucket.put(key, b"%d" % n, expect=0) for n in range(20)), return_exceptions=True)
    assert 19 == sum(isinstance(result, Conflict) for result in results)
    [winner] = [n for n, result in enumerate(results) if isinstance(result, int)]
    assert b"%d" % winner == (await bucket.get(key) or Entry("", b"", 0)).value


async def test_a_stale_revision_is_a_conflict_and_a_current_one_is_not(bucket: Bucket, key: str) -> None:
    first = await bucket.put(key, b"1")
    second = await bucket.put(key, b"2", expect=first)
    with pytest.raises(Conflict):
        await bucket.put(key, b"3", expect=first)
    assert (key, b"2", second) == await read(bucket, key)


async def test_a_deleted_key_is_gone_from_every_read(bucket: Bucket, key: str) -> None:
    await bucket.put(key, b"1")
    await bucket.delete(key)
    await bucket.delete(f"{key}.never-there")
    assert await bucket.get(key) is None
    assert {} == await bucket.get_many([key])
    assert [] == await bucket.all(key)


async def test_a_deleted_key_can_be_put_again(bucket: Bucket, key: str) -> None:
    await bucket.put(key, b"1")
    await bucket.delete(key)
    assert (key, b"2", await bucket.put(key, b"2")) == await read(bucket, key)


async def test_get_many_gives_those_that_exist_however_many(bucket: Bucket, key: str) -> None:
    keys = await put_many(bucket, key, KEYS_MAX + 1)
    found = await bucket.get_many([*keys, f"{key}.missing"])
    assert {one: one.encode() for one in keys} == {name: entry.value for name, entry in found.items()}
    assert {} == await bucket.get_many([])


async def test_all_gives_every_entry_under_a_filter(bucket: Bucket, key: str) -> None:
    keys = await put_many(bucket, key, 3)
    await bucket.put(f"{key}-other", b"x")
    assert [(one, one.encode()) for one in keys] == [(entry.key, entry.value) for entry in await bucket.all(f"{key}.*")]


async def test_keys_are_listed_under_a_filter(bucket: Bucket, key: str) -> None:
    keys = await put_many(bucket, key, 3)
    assert keys == sorted(await bucket.keys(f"{key}.>"))
    assert set(keys) <= set(await bucket.keys())
    assert [] == await bucket.keys(f"{key}.missing")


async def test_purged_keys_are_gone(bucket: Bucket, key: str) -> None:
    await put_many(bucket, key, 3)
    assert 3 == await bucket.purge(f"{key}.*")
    assert [] == await bucket.keys(f"{key}.*")
    assert 0 == await bucket.purge(f"{key}.*")


async def test_changes_notify_with_their_key(bucket: Bucket, key: str) -> None:
    changed: asyncio.Queue[str] = asyncio.Queue()
    await bucket.on_change(f"{key}.*", changed.put)
    await bucket.put(f"{key}-other", b"x")
    await bucket.put(f"{key}.a", b"x")
    assert f"{key}.a" == await asyncio.wait_for(changed.get(), 5)


async def test_a_bucket_that_is_not_there_is_unavailable(store: Store) -> None:
    with pytest.raises(Unavailable, match="no_such_bucket"):
        await store.bucket("no_such_bucket").get("key")


async def test_without_a_broker_reads_and_writes_are_unavailable(tmp_path: Path) -> None:
    with own_broker(tmp_path) as broker:
        async with open_store(broker.settings, "test") as store:
            await provision(store.broker, broker.settings)
            await store.runs.put("kept", b"1")
            await asyncio.to_thread(broker.stop)
            with pytest.raises(Unavailable):
                await store.runs.put("key", b"1")
            with pytest.raises(Unavailable):
                await store.runs.get("key")
            await asyncio.to_thread(broker.start)
            await store.runs.send("after", b"2")
            assert b"1" == (await store.runs.get("kept") or Entry("", b"", 0)).value
            assert names.bucket_stream(names.RUNS) == "KV_workflow_runs"


async def test_a_payload_over_its_limit_is_refused_by_the_broker_whoever_writes_it(store: Store, key: str) -> None:
    for bucket in (store.checkpoints, store.signals):
        await bucket.put(key, b"x" * PAYLOAD_BYTES_MAX)
        with pytest.raises(PenstockError, match="size"):
            await bucket.put(key, b"x" * (PAYLOAD_BYTES_MAX + 1025))
        found = await bucket.get(key)
        assert found is not None
        assert PAYLOAD_BYTES_MAX == len(found.value)
