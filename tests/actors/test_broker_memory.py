"""The embedded broker's garbage: its profiler collects it, on this host alone, when the broker has become quiet."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import msgspec
import pytest

from penstock.actors.processes.broker_memory import COLLECTED_AFTER_S, LOOK_S, Quiet
from penstock.broker.embedded.memory import collect_garbage, cpu_s
from penstock.broker.embedded.server import EmbeddedBroker, profiler_port
from penstock.config.settings import BrokerSettings
from tests.support.listening import listening
from tests.support.service import free_port
from tests.support.waiting import until_true

HUB = ("nats-leaf://127.0.0.1:1",)
IDLE, BUSY = 0.02, 0.5  # of a core


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(BrokerSettings(port=free_port(), data_dir=str(tmp_path)))
    broker.start()
    yield broker
    broker.stop()


def collections(port: int) -> int:
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/debug/pprof/heap?debug=1")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return next(int(line.rpartition(" ")[2]) for line in lines if line.startswith("# NumGC = "))


def collected_at(shares: list[float]) -> list[float]:
    """When garbage was collected, of a broker that used these shares of a core between two looks."""
    quiet, used_s, times = Quiet(0.0), 0.0, list[float]()
    for number, share in enumerate(shares):
        now, used_s = number * LOOK_S, used_s + share * LOOK_S
        if quiet.is_due(now, used_s):
            times.append(now)
            used_s += 1.0  # a collection is work of its own
            quiet.collected(used_s)
    return times


async def test_garbage_is_collected_when_it_is_asked_for(broker: EmbeddedBroker) -> None:
    await until_true(lambda: profiler_port(broker.settings) is not None)
    port = profiler_port(broker.settings)
    assert port
    before = collections(port)
    assert collect_garbage(broker.settings)
    assert before + 2 <= collections(port)


async def test_a_broker_that_is_away_collects_nothing(broker: EmbeddedBroker) -> None:
    await until_true(lambda: profiler_port(broker.settings) is not None)
    assert broker.command
    pid = broker.command.pid
    assert cpu_s(pid) is not None
    broker.stop()
    assert not collect_garbage(broker.settings)
    assert cpu_s(pid) is None


async def test_its_profiler_is_for_this_host_alone_and_a_leaf_has_none(broker: EmbeddedBroker, tmp_path: Path) -> None:
    await until_true(lambda: profiler_port(broker.settings) is not None)
    port = profiler_port(broker.settings)
    assert port
    assert {"127.0.0.1"} == listening(port)
    settings = msgspec.structs.replace(
        broker.settings, port=free_port(), data_dir=str(tmp_path / "leaf"), leaf_remotes=HUB
    )
    leaf = EmbeddedBroker(settings)
    leaf.start()
    try:
        assert profiler_port(settings) is None
        assert not collect_garbage(settings)
    finally:
        leaf.stop()


def test_a_quiet_broker_collects_a_few_times_and_then_not_until_it_was_busy() -> None:
    assert list(COLLECTED_AFTER_S) == collected_at([IDLE] * 200)
    assert [15.0, 45.0, 110.0 + 15.0] == collected_at([IDLE] * 20 + [BUSY] * 3 + [IDLE] * 4)


def test_a_busy_broker_is_left_alone() -> None:
    assert [] == collected_at([BUSY] * 200)
    assert [] == collected_at([BUSY, IDLE, IDLE] * 20)


def test_another_process_counts_as_busy() -> None:
    quiet = Quiet(0.0)
    assert not quiet.is_due(5.0, 100.0)
    assert not quiet.is_due(COLLECTED_AFTER_S[0], 1.0)
    assert not quiet.is_due(1000.0, None)
    assert not quiet.is_due(1005.0, 2.0)
