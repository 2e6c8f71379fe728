"""Streams with copies on three nodes: what was acknowledged is read at once, whichever node is asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.runs.shared.broker_clock import BrokerClock
from penstock.actors.runs.shared.lease import ShardLease
from penstock.actors.runs.shared.lease import now as lease_now
from penstock.actors.runs.timers import Timers
from penstock.broker import names
from penstock.broker.inspection.stream_list import ListedStream, streams_of
from penstock.broker.run_ids import new_run_id
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision, streams
from penstock.config.limits import PARTITIONS, TIMER_DURABLE_AFTER_S
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict, Unavailable
from penstock.engine.run.commands import SetTimer
from penstock.engine.run.state import RunStatus
from penstock.http.catalog import Catalog
from tests.support.server import NODES, Cluster, cluster, server
from tests.support.waiting import until, until_true
from tests.support.world import chain, register

pytestmark = pytest.mark.timeout(90)

ROUNDS = 300
STALE_WITHIN_S = 10.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        asyncio.run(found.formed())
        yield found


@pytest.fixture
async def stores(nodes: Cluster) -> AsyncIterator[list[Store]]:
    """One connection to each node."""
    async with AsyncExitStack() as stack:
        opened = []
        for node in nodes.nodes:
            settings = BrokerSettings(url=node.url, replicas=NODES)
            opened.append(await stack.enter_async_context(open_store(settings, "test")))
        await provision(opened[0].broker, nodes.settings)
        yield opened


async def stale(stores: list[Store], read: Callable[[Store, str], Awaitable[int]], rounds: int) -> int:
    """How often a key that was just written reads as it was before; writer and reader are on different nodes."""
    found = 0
    for number in range(rounds):
        revision = await stores[number % NODES].runs.put("key", b"%d" % number)
        found += await read(stores[(number + 1) % NODES], "key") < revision
    return found


async def any_copy(store: Store, key: str) -> int:
    """What the broker answers to who does not ask the leader."""
    request = {"last_by_subj": names.key_subject(names.RUNS, key)}
    found, _ = await store.reader._ask(names.bucket_stream(names.RUNS), request, alone=True)
    return found[0].seq if found else 0


async def ours(store: Store, key: str) -> int:
    entry = await store.runs.get(key)
    return entry.revision if entry else 0


async def listed(store: Store, key: str) -> int:
    return max((entry.revision for entry in await store.runs.all() if entry.key == key), default=0)


async def test_a_copy_may_be_behind_and_our_reads_are_not(stores: list[Store]) -> None:
    deadline = time.monotonic() + STALE_WITHIN_S
    while not await stale(stores, any_copy, 50):
        assert time.monotonic() < deadline, "no copy was ever behind: are these reads still needed?"
    assert 0 == await stale(stores, ours, ROUNDS)
    assert 0 == await stale(stores, listed, ROUNDS)


async def test_a_run_that_was_answered_for_is_there_on_every_node_and_can_be_cancelled(stores: list[Store]) -> None:
    definition, digest = await register(stores[0], chain("copies"))
    for number in range(ROUNDS // 3):
        writer, reader = stores[number % NODES], stores[(number + 1) % NODES]
        run_id = await run_operations.start(writer, definition, digest, Raw(b"null"))
        assert run_id == (await run_operations.get(reader, run_id)).run_id  # raises NotFound from a copy that is behind
        await run_operations.cancel(reader, run_id)
        assert RunStatus.CANCELLED is (await run_operations.get(writer, run_id)).status


async def test_what_a_copy_lacks_is_read_from_the_leader_in_order(stores: list[Store]) -> None:
    reader = stores[1].reader
    stream, subject = names.bucket_stream(names.SIGNALS), names.key_subject(names.SIGNALS, "late.*")
    written = [await stores[0].signals.put(f"late.{number}", b"%d" % number) for number in range(5)]
    newest = await reader.leaders.last(stream, subject)
    for behind in range(5):
        lacking = await reader._missing(stream, subject, written[behind], newest)
        assert written[behind:] == [one.seq for one in lacking]
        assert [b"%d" % number for number in range(behind, 5)] == [one.data for one in lacking]


async def test_a_workflow_that_was_registered_is_the_one_that_the_next_run_has(stores: list[Store]) -> None:
    catalogs = [Catalog(store.definitions) for store in stores]  # nothing tells them of each other's changes
    for number in range(30):
        document = {**chain("renewed"), "version": str(number)}
        _, digest = await register(stores[number % NODES], document)
        assert [digest] * NODES == [(await catalog.wanted("renewed")).digest for catalog in catalogs]


async def test_streams_name_their_leader_and_how_far_copies_are(stores: list[Store]) -> None:
    broker = stores[0].broker
    wanted = {names.HISTORY, names.bucket_stream(names.RUNS)}
    assert broker.cluster

    async def settled() -> list[ListedStream] | None:
        found = await streams_of(broker, wanted)
        return found if all(copy.current and copy.online for one in found for copy in one.copies) else None

    found = await until(settled)
    assert found is not None
    assert wanted == {one.name for one in found}
    for one in found:
        assert NODES == len({one.leader, *(copy.node for copy in one.copies)}), one
        assert {0} == {copy.behind for copy in one.copies}


async def test_everything_has_its_copies(stores: list[Store]) -> None:
    broker = stores[0].broker
    await asyncio.gather(
        *(stores[0].consumers.open(names.engine_consumer(number, 0), number, 1) for number in range(PARTITIONS))
    )
    async with stores[0].tasks.consume("copied", lambda _: None, batch=1, room=lambda: 1):
        found = {one["config"]["name"]: one for one in (await broker.api("STREAM.LIST"))["streams"]}
        wanted = {one["name"]: one["storage"] for one in streams(BrokerSettings(url="nats://x", replicas=NODES))}
        assert wanted == {name: found[name]["config"]["storage"] for name in wanted}
        assert "memory" in wanted.values()
        assert {NODES} == {copies(found[name]) for name in wanted}
        consumers = (await broker.api(f"CONSUMER.LIST.{names.HISTORY}", {}))["consumers"]
        consumers += (await broker.api(f"CONSUMER.LIST.{names.TASKS}", {}))["consumers"]
    assert PARTITIONS < len(consumers)
    assert {NODES} == {copies(one) for one in consumers}


def copies(info: dict[str, Any]) -> int:
    return 1 + len(info["cluster"]["replicas"])


async def test_streams_without_copies_are_named_and_get_them_without_a_stop(tmp_path: Path) -> None:
    """An installation of one copy moves to three: an operator scales its streams, while they are used."""
    with cluster(tmp_path) as own:
        await own.formed()
        single = msgspec.structs.replace(own.settings, replicas=1)
        async with open_store(single, "test") as store:
            await provision(store.broker, single)
            assert not await store.runs.has_copies()
            await store.runs.put("kept", b"value")
            with pytest.raises(Conflict) as refused:
                await provision(store.broker, own.settings)
            told = str(refused.value).splitlines()
            assert [
                f"the stream {one['name']} exists with 1 replica(s), at least 3 wanted" for one in streams(single)
            ] == told
            for one in streams(single):
                config = (await store.broker.api(f"STREAM.INFO.{one['name']}"))["config"]
                await store.broker.api(f"STREAM.UPDATE.{one['name']}", {**config, "num_replicas": NODES})
        async with open_store(own.settings, "test") as store:
            for one in streams(single):
                await own.whole(one["name"])
            await provision(store.broker, own.settings)
            assert await store.runs.has_copies()
            entry = await store.runs.get("kept")
            assert entry is not None
            assert b"value" == entry.value


async def test_a_timer_fires_once_although_the_leader_that_held_it_dies(tmp_path: Path) -> None:
    with cluster(tmp_path) as own:
        await own.formed()
        async with open_store(own.settings, "test") as store:
            await provision(store.broker, own.settings)
            run_id, timer = (
                new_run_id(),
                SetTimer(timer="late", due=time.time() + TIMER_DURABLE_AFTER_S + 2),
            )
            schedule = names.schedule_subject(run_id, timer.timer)
            await handed_over(store, run_id, timer, schedule)
            (await own.leader(names.HISTORY)).kill()

            async def fired() -> list[bytes]:
                with suppress(Unavailable):
                    return [one.data for one in await store.history.read(run_id)]
                return []

            [body] = await until(fired)
            assert b'"timer.fired"' in body
            assert await store.reader.one(names.HISTORY, schedule) is None
            assert [body] == await fired()


async def handed_over(store: Store, run_id: str, timer: SetTimer, schedule: str) -> None:
    """Return when the broker has the timer, and nobody else."""
    lease = ShardLease()
    lease.renewed(lease_now() + 60)
    timers = Timers(store, lease, BrokerClock())
    timers.arm(run_id, timer, time.monotonic())
    running = asyncio.create_task(timers.run())
    await until(lambda: store.reader.one(names.HISTORY, schedule))
    running.cancel()


async def test_replicas_need_a_cluster(tmp_path: Path) -> None:
    with server(tmp_path) as alone:
        await until_true(lambda: alone.listens)
        settings = BrokerSettings(url=alone.url, replicas=NODES)
        async with open_store(settings, "test") as store:
            with pytest.raises(
                Conflict, match=f"replicas = 3 needs a cluster: the broker at {alone.url} is a server alone"
            ):
                await provision(store.broker, settings)
