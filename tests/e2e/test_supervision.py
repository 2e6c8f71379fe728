"""The process tree: what dies is started again, and the end of the supervisor is the end of all."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import StartService
from tests.support.service import Service
from tests.support.waiting import until_true


@pytest.mark.parametrize("name", ["shard-0", "services", "http", "broker"])
def test_child_that_dies_again_and_again_is_replaced_each_time(start_service: StartService, name: str) -> None:
    service = start_service(shards=1)
    for _ in range(4):
        former = service.kill(name)
        assert service.await_restart(name, former) != former
    service.await_ready()


def test_siblings_of_a_child_that_died_go_on_unharmed(start_service: StartService) -> None:
    service = start_service(shards=2)
    before = service.pids()
    service.await_restart("shard-1", service.kill("shard-1"))
    after = service.pids()
    assert {name for name in before if before[name] != after[name]} == {"shard-1"}


async def test_children_do_not_outlive_a_killed_supervisor(start_service: StartService) -> None:
    service = start_service(shards=1)
    pids = list(service.pids().values())
    os.kill(service.pid, signal.SIGKILL)
    await until_true(lambda: not any(_runs(pid) for pid in pids))
    service.kill_all()


def test_stop_ends_everything_with_code_0(tmp_path: Path) -> None:
    service = Service(tmp_path).start()
    assert service.stop() == 0


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
