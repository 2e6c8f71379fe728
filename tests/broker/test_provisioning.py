"""Streams and buckets: made once, and never changed behind anybody's back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker import names
from penstock.broker.nats.connection import Broker, connect
from penstock.broker.streams.provisioning import provision, streams
from penstock.config.limits import DEDUP_WINDOW_S
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Conflict
from tests.support.own_broker import OwnBroker, own_broker


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnBroker]:
    with own_broker(tmp_path) as broker:
        yield broker


@pytest.fixture
def settings(own: OwnBroker) -> BrokerSettings:
    return own.settings


@pytest.fixture
async def broker(settings: BrokerSettings) -> AsyncIterator[Broker]:
    """Nothing is made yet."""
    async with connect(settings, "test") as connected:
        yield connected


async def configs(broker: Broker) -> dict[str, dict[str, Any]]:
    listed = await broker.api("STREAM.LIST")
    return {one["config"]["name"]: one["config"] for one in listed["streams"]}


def wanted(settings: BrokerSettings, name: str) -> dict[str, Any]:
    [found] = [one for one in streams(settings) if one["name"] == name]
    return found


async def test_everything_is_made(broker: Broker, settings: BrokerSettings) -> None:
    await provision(broker, settings)
    expected = {"WORKFLOW_HISTORY", "TASK_QUEUES", "DEAD_LETTERS", "TELEMETRY", "EVENTS", "STICKY_TASKS"}
    expected |= {
        f"KV_{name}"
        for name in ("workflow_defs", "workflow_runs", "workers", "signals", "checkpoints", "sticky_bindings")
    }
    assert expected <= set(await configs(broker))


async def test_making_again_changes_nothing(broker: Broker, settings: BrokerSettings) -> None:
    await provision(broker, settings)
    before = await configs(broker)
    await provision(broker, settings)
    assert before == await configs(broker)


async def test_what_is_configured_is_what_the_broker_says(broker: Broker, settings: BrokerSettings) -> None:
    await provision(broker, settings)
    found = await configs(broker)
    differing = [
        (one["name"], field)
        for one in streams(settings)
        for field in one
        if one[field] != found[one["name"]].get(field, 0)
    ]
    assert [] == differing


@pytest.mark.parametrize("change", [{"retention": "limits"}, {"subjects": ["task.*.*"]}, {"storage": "memory"}])
async def test_a_stream_in_another_form_is_a_conflict_and_stays_as_it_is(
    broker: Broker, settings: BrokerSettings, change: dict[str, Any]
) -> None:
    await broker.api(f"STREAM.CREATE.{names.TASKS}", {**wanted(settings, names.TASKS), **change})
    before = (await configs(broker))[names.TASKS]
    [field] = change
    with pytest.raises(Conflict, match=f"the stream {names.TASKS} exists with {field} = "):
        await provision(broker, settings)
    assert before == (await configs(broker))[names.TASKS]


async def test_every_problem_is_named(broker: Broker, settings: BrokerSettings) -> None:
    for name in (names.DEAD, names.bucket_stream(names.RUNS)):
        await broker.api(f"STREAM.CREATE.{name}", {**wanted(settings, name), "storage": "memory"})
    with pytest.raises(Conflict) as caught:
        await provision(broker, settings)
    assert [True, True] == [name in str(caught.value) for name in (names.DEAD, names.bucket_stream(names.RUNS))]


async def test_subjects_that_another_stream_has_are_a_conflict(broker: Broker, settings: BrokerSettings) -> None:
    await broker.api("STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["history.>"], "storage": "memory"})
    with pytest.raises(Conflict, match=names.HISTORY):
        await provision(broker, settings)


async def test_a_deduplication_window_below_the_floor_is_refused(broker: Broker, settings: BrokerSettings) -> None:
    short = {**wanted(settings, names.HISTORY), "duplicate_window": int((DEDUP_WINDOW_S - 1) * 1e9)}
    await broker.api(f"STREAM.CREATE.{names.HISTORY}", short)
    with pytest.raises(Conflict, match=f"{names.HISTORY} exists with duplicate_window = 4 s, at least 5 s needed"):
        await provision(broker, settings)


async def test_other_retention_and_a_longer_window_are_the_operators_choice(
    broker: Broker, settings: BrokerSettings
) -> None:
    other = {**wanted(settings, names.HISTORY), "max_age": 86_400 * 10**9, "duplicate_window": 60 * 10**9}
    await broker.api(f"STREAM.CREATE.{names.HISTORY}", other)
    await provision(broker, settings)
    found = (await configs(broker))[names.HISTORY]
    assert (86_400 * 10**9, 60 * 10**9) == (found["max_age"], found["duplicate_window"])


async def test_task_queues_of_a_former_version_take_batches_from_now_on(
    broker: Broker, settings: BrokerSettings
) -> None:
    former = {**wanted(settings, names.TASKS), "allow_atomic": False, "max_age": 10**15}
    await broker.api(f"STREAM.CREATE.{names.TASKS}", former)
    await provision(broker, settings)
    found = (await configs(broker))[names.TASKS]
    assert found["allow_atomic"]
    assert 10**15 == found["max_age"]  # an operator's


async def test_a_history_of_a_former_version_stays_as_it_is(broker: Broker, settings: BrokerSettings) -> None:
    former = {**wanted(settings, names.HISTORY), "max_msgs_per_subject": -1}
    await broker.api(f"STREAM.CREATE.{names.HISTORY}", former)
    await provision(broker, settings)
    assert -1 == (await configs(broker))[names.HISTORY]["max_msgs_per_subject"]


def block_sizes(directory: Path, stream: str) -> list[int]:
    return [path.stat().st_size for path in directory.rglob(f"{stream}/msgs/*.blk")]


async def test_the_history_has_blocks_of_4_mb(
    broker: Broker, settings: BrokerSettings, tmp_path: Path, own: OwnBroker
) -> None:
    """The broker's own files: it decides about their size by the limits of a stream."""
    await provision(broker, settings)
    for number in range(100):
        await broker.request(f"history.{number:032x}", b"x" * 100_000)
    own.stop()
    sizes = block_sizes(tmp_path, names.HISTORY)
    assert 10_000_000 < sum(sizes)
    assert 3_900_000 < max(sizes) < 4_300_000
