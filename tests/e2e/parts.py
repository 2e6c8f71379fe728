"""The service in parts: `penstock engine`, `penstock api` and workers, each a process tree of its own over somebody
else's broker."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

import httpx2
import orjson

from penstock.actors.runs.loading import load_many
from penstock.broker.store import Store
from penstock.client import Client
from penstock.engine.errors import PenstockError, Unavailable
from penstock.engine.run.state import Run, RunStatus
from tests.support.service import PENSTOCK, Service, _descendants, clean_environ, free_port
from tests.support.waiting import until
from tests.support.world import chain

ENGINE = (PENSTOCK, "engine")
READY_S_MAX = 40.0
ENDED_S_MAX = 90.0
READ_MAX = 50
STOP_S_MAX = 20.0
T = TypeVar("T")


class Parts:
    """Owned by a test, by way of `parts`. Each process writes to `<name>.log` in the directory."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._directory, self._port = directory, free_port()
        self.environ = {
            **clean_environ(),
            "SERVICE_LISTEN": f"127.0.0.1:{self._port}",
            "SERVICE_DATA_DIR": str(directory / "data"),
            "SERVICE_SHARDS": "1",
            "SERVICE_HTTP_WORKERS": "1",
            "SERVICE_LOG_FORMAT": "json",
            **environ,
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self, name: str, arguments: Sequence[str], **environ: str) -> subprocess.Popen[bytes]:
        """A process of this name; its log says which."""
        with self.log_path(name).open("ab") as log:
            process = subprocess.Popen(
                list(arguments), env={**self.environ, **environ}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._processes[name] = process
        return process

    def worker(self, task: str, name: str = "worker") -> subprocess.Popen[bytes]:
        return self.start(name, [sys.executable, "-m", "tests.support.echo_worker", task])

    def log_path(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def restart(self, name: str, arguments: Sequence[str]) -> None:
        """Have it end in peace, start it again, and return when all is ready."""
        code = self.end(name)
        assert code == 0, f"{name} ended with code {code}\n{self.log_path(name).read_text(errors='replace')[-2000:]}"
        self.start(name, arguments)
        self.await_ready()

    def host(self, name: str, **environ: str) -> None:
        """An engine as on a machine of this name."""
        engine = [sys.executable, "-m", "tests.support.named_host", "engine"]
        self.start(name, engine, NAMED_HOST=name, SERVICE_DATA_DIR=str(self._directory / f"data-{name}"), **environ)

    def pids(self, name: str) -> list[int]:
        """The process of this name and all under it."""
        process = self._processes[name]
        return [process.pid, *_descendants(process.pid)]

    def signal_all(self, name: str, number: signal.Signals) -> None:
        for pid in self.pids(name):
            os.kill(pid, number)

    def kill_all(self, name: str) -> None:
        """What a power cut does to a machine: all its processes are gone, and none has a chance to finish."""
        self._processes[name].send_signal(signal.SIGSTOP)  # so that it does nothing while its children die
        self.signal_all(name, signal.SIGKILL)
        self._processes.pop(name).wait()

    def end(self, name: str) -> int:
        """As an operator ends it; returns the exit code."""
        process = self._processes.pop(name)
        process.terminate()
        return process.wait(STOP_S_MAX)

    def alive(self) -> bool:
        return all(process.poll() is None for process in self._processes.values())

    def await_ready(self) -> None:
        with Client(self.url) as client:
            self.patiently(client.ready, READY_S_MAX)

    def unhealthy(self) -> str:
        """What /health answers with 503, as soon as it answers."""
        deadline = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline:
            with suppress(httpx2.TransportError):
                answer = httpx2.get(f"{self.url}/health")
                assert HTTPStatus.SERVICE_UNAVAILABLE == answer.status_code
                return answer.text
            time.sleep(0.1)
        raise AssertionError(self.last_words())

    def bulk(self, workflow: str, count: int) -> Sequence[str]:
        with Client(self.url) as client:
            return client.bulk(workflow, [b"%d" % n for n in range(count)]).run_ids

    def bulk_patiently(self, workflow: str, count: int) -> Sequence[str]:
        """Again and again, while the brokers agree on a new leader."""
        return self.patiently(lambda: self.bulk(workflow, count), READY_S_MAX)

    def patiently(self, ask: Callable[[], T], seconds_max: float) -> T:
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline:
            assert self.alive(), self.last_words()
            try:
                return ask()
            except PenstockError:
                time.sleep(0.1)
        raise AssertionError(self.last_words())

    def last_words(self) -> str:
        return "\n".join(
            f"--- {name}\n{self.log_path(name).read_text(errors='replace')[-2000:]}" for name in self._processes
        )

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(STOP_S_MAX)


@contextmanager
def parts(directory: Path, environ: Mapping[str, str], hosts: Mapping[str, Mapping[str, str]] = {}) -> Iterator[Parts]:
    """An API and an engine, or one on each of these hosts (by name: what is special about its environment), that are
    ready, for the time of the block."""
    started = Parts(directory, environ)
    try:
        for name, special in hosts.items():
            started.host(name, **special)
        if not hosts:
            started.start("engine", ENGINE)
        started.start("api", [PENSTOCK, "api"])
        started.await_ready()
        yield started
    finally:
        started.stop()


def define(started: Parts | Service, name: str, task: str) -> None:
    """A workflow of three steps of this task type."""
    with Client(started.url) as client:
        client.register(
            orjson.dumps({**chain(name), "steps": [{**step, "task": task} for step in chain(name)["steps"]]})
        )


async def in_the_middle(store: Store, run_ids: Sequence[str]) -> None:
    """Return when some of the runs have ended, and most have not."""

    async def some_ended() -> bool:
        return any(run.ended for run in await load_many(store, run_ids[:READ_MAX]))

    await until(some_ended)


async def all_completed(store: Store, run_ids: Sequence[str]) -> list[Run]:
    """Every one of the runs, once all have ended; each step needed one attempt."""
    runs = await all_ended(store, run_ids)
    assert {RunStatus.COMPLETED} == {run.status for run in runs}
    assert {1} == {step.attempts for run in runs for step in run.steps.values()}
    return runs


async def all_ended(store: Store, run_ids: Sequence[str]) -> list[Run]:
    """Every one of the runs, once all have ended. Only a few of those that have not are read at once: to read a
    thousand again and again would take more than to run them."""
    ended: dict[str, Run] = {}
    async with asyncio.timeout(ENDED_S_MAX):
        while left := [run_id for run_id in run_ids if run_id not in ended][:READ_MAX]:
            with suppress(Unavailable):
                ended.update((run.run_id, run) for run in await load_many(store, left) if run.ended)
            if ended.keys().isdisjoint(left[-1:]):
                await asyncio.sleep(0.1)
    return [ended[run_id] for run_id in run_ids]
