"""The process tree: what dies is started again, and the end of the supervisor is the end of all."""

from __future__ import annotations

import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.config.limits import HTTP_SHUTDOWN_S, SHUTDOWN_S
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


async def test_a_builtin_worker_is_a_child_like_the_others(start_service: StartService) -> None:
    service = start_service(shards=1, builtin_workers="http", http_slots=7)
    with service.client() as client:
        await until_true(lambda: len(client.workers()) == 1)
        (first,) = client.workers()
        assert (("penstock.http",), 7) == (tuple(first.task_types), first.max_tasks)
        service.await_restart("http-worker", service.kill("http-worker"))
        await until_true(lambda: any(one.worker_id != first.worker_id for one in client.workers()))
    assert service.stop() == 0
    assert "http-worker" not in {line["name"] for line in service.log_lines() if line["event"] == "process_killed"}


def test_siblings_of_a_child_that_died_go_on_unharmed(start_service: StartService) -> None:
    service = start_service(shards=2)
    before = service.pids()
    service.await_restart("shard-1", service.kill("shard-1"))
    after = service.pids()
    assert {name for name in before if before[name] != after[name]} == {"shard-1"}


def test_the_supervisor_has_one_thread_and_so_may_fork(start_service: StartService) -> None:
    service = start_service(shards=1)
    service.await_restart("services", service.kill("services"))
    assert [str(service.pid)] == os.listdir(f"/proc/{service.pid}/task")


async def test_children_do_not_outlive_a_killed_supervisor(start_service: StartService) -> None:
    service = start_service(shards=1)
    pids = list(service.pids().values())
    os.kill(service.pid, signal.SIGKILL)
    await until_true(lambda: not any(_runs(pid) for pid in pids))
    service.kill_all()


def test_everything_is_gone_after_15_s_however_much_hangs(start_service: StartService) -> None:
    service = start_service(shards=3, http_workers=1)
    stopped = [pid for name, pid in service.pids().items() if name != "broker"] + service.http_worker_pids()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    assert service.stop() == 0  # which also sees that no process is left
    assert time.monotonic() - began < SHUTDOWN_S
    killed = {line["name"] for line in service.log_lines() if line["event"] == "process_killed"}
    assert {"http", "shard-0", "shard-1", "shard-2", "services"} <= killed
    assert "broker" not in killed  # there was time left for it to end in peace


def test_open_requests_hold_the_end_up_for_5_s_at_most(start_service: StartService) -> None:
    service = start_service(shards=1, http_workers=1)
    with service.client() as client, ThreadPoolExecutor() as threads:
        client.register(b'{"name":"endless","steps":[{"id":"a","task":"nobody.does.it"}]}')
        run_id = client.start("endless", b"null").run_id
        with socket.create_connection(service.http_address) as waiting:
            waiting.sendall(f"GET /runs/{run_id}?wait_ms=60000 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            client.get_run(run_id)  # answered after that one was taken
            began = time.monotonic()
            ended = threads.submit(service.stop)
            waiting.settimeout(SHUTDOWN_S)
            while waiting.recv(4096):  # until the server closes it
                pass
            assert time.monotonic() - began < HTTP_SHUTDOWN_S + 1
            assert ended.result() == 0
            assert time.monotonic() - began < SHUTDOWN_S


def test_stop_ends_everything_with_code_0(tmp_path: Path) -> None:
    service = Service(tmp_path).start()
    assert service.stop() == 0


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
