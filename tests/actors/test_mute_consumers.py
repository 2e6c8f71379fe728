"""The consumer of a partition answers nobody any more: its shard goes on by another one, from what is handled."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.actors.ownership import claims
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.broker import names
from penstock.broker.records.owners import Claim
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.settings import BrokerSettings
from penstock.engine.run.state import RunStatus
from tests.support.server import server
from tests.support.waiting import until, until_true
from tests.support.world import chain, echo, ended, start

USERS = """
authorization {{ users: [
  {{ user: all, password: all }}
  {{ user: shard, password: shard, permissions: {{ publish: {{ deny: [{denied}] }} }} }}
] }}"""
ASKED = ("INFO", "RESET", "MSG.NEXT")


async def test_a_partition_goes_on_by_another_consumer_when_its_own_stays_mute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a cluster that leaves a consumer without a leader: nothing that is asked of it is answered, and all else
    is."""
    monkeypatch.setattr(claims, "CONSUMER_SILENT_S", 0.5)
    with server(tmp_path, USERS.format(denied="")) as broker:
        await until_true(lambda: broker.listens)
        settings = BrokerSettings(url=broker.url, user="all", password="all")
        async with open_store(settings, "test") as store:
            await provision(store.broker, settings)
            as_shard = BrokerSettings(url=broker.url, user="shard", password="shard")
            async with (
                open_store(as_shard, "shard") as own,
                open_shard(own, new_member("a")) as shard,
                echo(store, "mute.echo") as worker,
            ):
                first = await ended(store, await start(store, chain("mute")))
                before = await claim(store, first.run_id)
                broker.configure(
                    USERS.format(denied=", ".join(f'"$JS.API.CONSUMER.{verb}.*.{before.consumer}"' for verb in ASKED))
                )
                broker.kill()
                broker.start()
                await until_true(lambda: broker.listens and store.broker.connected)
                await until_true(lambda: own.consumers.silent_s(before.consumer) > 0)
                second = await ended(store, await start_beside(store, first.run_id))
                after = await claim(store, first.run_id)
                await until(lambda: is_removed(store, before.consumer))
                assert shard.lease.good
    assert {RunStatus.COMPLETED} == {first.status, second.status}
    assert {1} == set(worker.seen.values())
    assert before.owner == after.owner
    assert before.consumer != after.consumer


async def start_beside(store: Store, run_id: str) -> str:
    """A run in the same partition; what else is started on the way does not matter."""
    while True:
        other = await start(store, chain("mute"))
        if names.partition(other) == names.partition(run_id):
            return other


async def claim(store: Store, run_id: str) -> Claim:
    """That of the run's partition."""
    return (await store.owners.read()).claims[names.partition(run_id)].claim


async def is_removed(store: Store, consumer: str) -> bool:
    listed = await store.broker.api(f"CONSUMER.NAMES.{names.HISTORY}")
    return consumer not in listed["consumers"]
