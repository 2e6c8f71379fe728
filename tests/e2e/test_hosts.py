"""Engines on three hosts share the partitions: one is killed, paused, cut off or drained, and every run gets on."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import orjson
import pytest

from penstock.actors.runs.loading import load_many
from penstock.broker import names, record_keys
from penstock.broker.store import Store, open_store
from penstock.config.limits import LEASE_S, PARTITIONS
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Unavailable
from tests.e2e.parts import Parts, all_completed, define, in_the_middle, parts
from tests.support.line import Lines, lines
from tests.support.listening import connected
from tests.support.server import cluster, server
from tests.support.waiting import until, until_true

pytestmark = pytest.mark.timeout(240)

HOSTS = ("a", "b", "c")
RUNS = 200
TASK = "hosts.echo"


@contextmanager
def one_broker(directory: Path) -> Iterator[BrokerSettings]:
    with server(directory) as one:
        asyncio.run(until_true(lambda: one.listens))
        yield BrokerSettings(url=one.url)


@contextmanager
def three_brokers(directory: Path) -> Iterator[BrokerSettings]:
    with cluster(directory) as nodes:
        asyncio.run(nodes.formed())
        yield nodes.settings


@pytest.fixture(params=[one_broker, three_brokers], ids=lambda kind: kind.__name__)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerSettings]:
    with request.param(tmp_path) as settings:
        yield settings


@pytest.fixture
def wires(broker: BrokerSettings) -> Iterator[Mapping[str, Lines]]:
    """The only way of each host to the broker, in a test that asks for them."""
    assert broker.url
    ports = [int(url.rpartition(":")[2]) for url in broker.url.split(",")]
    with ExitStack() as stack:
        yield {host: stack.enter_context(lines(ports)) for host in HOSTS}


@pytest.fixture
def running(request: pytest.FixtureRequest, broker: BrokerSettings, tmp_path: Path) -> Iterator[Parts]:
    assert broker.url
    hosts: dict[str, dict[str, str]] = {host: {} for host in HOSTS}
    if "wires" in request.fixturenames:
        hosts = {host: {"SERVICE_BROKER_URL": own.url} for host, own in request.getfixturevalue("wires").items()}
    with parts(
        tmp_path, {"SERVICE_BROKER_URL": broker.url, "SERVICE_REPLICAS": str(broker.replicas)}, hosts
    ) as started:
        started.worker(TASK)
        define(started, "hosts", TASK)
        yield started


@pytest.fixture
async def store(broker: BrokerSettings, running: Parts) -> AsyncIterator[Store]:
    async with open_store(broker, "test") as opened:
        yield opened


async def owned(store: Store) -> dict[str, int]:
    """How many partitions each host owns."""
    view = await store.owners.read()
    found = dict.fromkeys((listed.member.host for listed in view.members.values()), 0)
    for claimed in view.claims.values():
        if claimed.claim.owner in view.members:
            found[view.members[claimed.claim.owner].member.host] += 1
    return found


async def shared(store: Store, *hosts: str) -> None:
    """Return once these hosts, and no others, share all partitions out evenly."""

    async def is_so() -> bool:
        try:
            found = await owned(store)
        except Unavailable:
            return False
        some = {host: count for host, count in found.items() if count}
        return (
            set(some) == set(hosts)
            and sum(some.values()) == PARTITIONS
            and max(some.values()) - min(some.values()) <= 1
        )

    await until(is_so, 60)


async def bulk(running: Parts) -> list[str]:
    return list(await asyncio.to_thread(running.bulk_patiently, "hosts", RUNS))


async def test_runs_go_on_at_other_hosts_when_theirs_is_killed_and_it_gets_its_share_again_when_it_is_back(
    running: Parts, store: Store
) -> None:
    await shared(store, *HOSTS)
    run_ids = await bulk(running)
    await in_the_middle(store, run_ids)
    running.kill_all("b")
    await all_completed(store, run_ids)
    await shared(store, "a", "c")
    running.host("b")
    await shared(store, *HOSTS)
    await all_completed(store, await bulk(running))
    assert running.alive()


async def test_a_host_that_is_paused_for_longer_than_its_lease_changes_nothing_when_it_wakes_up(
    running: Parts, store: Store
) -> None:
    await shared(store, *HOSTS)
    run_ids = await bulk(running)
    await in_the_middle(store, run_ids)
    running.signal_all("a", signal.SIGSTOP)
    runs = await all_completed(store, run_ids)
    await shared(store, "b", "c")
    running.signal_all("a", signal.SIGCONT)
    await until_true(lambda: "lease_lost" in running.log_path("a").read_text())
    await shared(store, *HOSTS)
    assert runs == await load_many(store, run_ids)
    await all_completed(store, await bulk(running))
    assert running.alive()


async def test_a_host_that_is_cut_off_for_longer_than_its_lease_changes_nothing_when_what_it_sent_arrives_at_last(
    running: Parts, store: Store, wires: Mapping[str, Lines]
) -> None:
    await shared(store, *HOSTS)
    assert all(
        set() < connected(running.pids(host)) <= own.ports for host, own in wires.items()
    )  # no host has another way
    run_ids = await bulk(running)
    await in_the_middle(store, run_ids)
    wires["a"].cut()
    runs = await all_completed(store, run_ids)
    await shared(store, "b", "c")
    await until_true(lambda: "lease_lost" in running.log_path("a").read_text())
    assert connected(running.pids("a")) <= wires["a"].ports  # nor has it found one
    assert names.key_subject(names.ENGINES, record_keys.MEMBER).encode() in wires["a"].late  # a sign of its former life
    wires["a"].mend()
    await shared(store, *HOSTS)
    await all_completed(store, await bulk(running))
    assert runs == await load_many(store, run_ids)
    assert len(HOSTS) == len((await store.owners.read()).members)
    assert running.alive()


async def test_a_host_that_is_cut_off_for_a_moment_keeps_what_it_owns(
    running: Parts, store: Store, wires: Mapping[str, Lines]
) -> None:
    await shared(store, *HOSTS)
    before = await store.owners.read()
    run_ids = await bulk(running)
    await in_the_middle(store, run_ids)
    wires["a"].cut()
    more = asyncio.create_task(bulk(running))
    await asyncio.sleep(LEASE_S / 3)
    wires["a"].mend()
    await all_completed(store, [*run_ids, *await more])
    assert before.claims == (await store.owners.read()).claims
    assert running.alive()


async def test_a_host_that_is_drained_hands_everything_over_and_may_end(running: Parts, store: Store) -> None:
    await shared(store, *HOSTS)
    run_ids = await bulk(running)
    await in_the_middle(store, run_ids)
    command = [sys.executable, "-m", "tests.support.named_host", "drain", "--json"]
    environ = {**running.environ, "NAMED_HOST": "c"}
    done = await asyncio.to_thread(
        subprocess.run, command, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert 0 == done.returncode, done.stderr
    said = orjson.loads(done.stdout)
    assert ("c", 1) == (said["host"], said["shards"])
    assert PARTITIONS // 3 <= said["partitions"] <= PARTITIONS // 3 + 1
    await shared(store, "a", "b")
    assert 0 == running.end("c")
    assert 0 == running.end("a")  # which hands over by itself
    await all_completed(store, run_ids)
    await shared(store, "b")
    assert "shard_gone" not in running.log_path("b").read_text()  # nobody had to be waited for
    assert running.alive()
