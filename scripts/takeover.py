#!/usr/bin/env python3
"""Measure how long runs stand still when their shard is killed, or the whole host of their shard is killed or stopped.

    scripts/takeover.py                     everything: about fifteen minutes
    scripts/takeover.py --times 10          fewer of each

A broker of its own, engines as process trees with data directories of their own, and a worker, all on this machine. At
the moment of each signal new runs are started in all partitions of the victim; the time is until the last of them has
ended. The next signal comes when everything is as it was before. Restarts are CPU time of Python: figures of a busy
machine say little.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import click
import uvloop
from load.figures import percentile
from load.processes import descendants
from load.service import free_ports
from msgspec import Raw

from penstock.actors.control import run_operations
from penstock.actors.runs.loading import load
from penstock.broker import names
from penstock.broker.embedded.server import EmbeddedBroker
from penstock.broker.nats.pull import Delivery
from penstock.broker.records.owners import Member
from penstock.broker.store import Store, open_store
from penstock.broker.streams.provisioning import provision
from penstock.config.limits import PARTITIONS
from penstock.config.settings import BrokerSettings
from penstock.engine.run.events import StepCompleted
from penstock.engine.validation import parse

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
PROBES = 300
WHOLE_S_MAX = 60.0
ENDED_S_MAX = 60.0  # far beyond every promise: runs that have not ended then never will
TASK = "takeover.echo"
LIVED_S = 11.0  # before it is killed: a process that dies young is not started again at once


class Scene(NamedTuple):
    """`shards` are of each host. What comes to an end, and how, is said by `title`."""

    title: str
    hosts: int
    shards: int
    end: Callable[[Engine, Member], None]


class Engine:
    """One `penstock engine`, in the place of a host."""

    def __init__(self, url: str, directory: Path, shards: int) -> None:
        given = {
            "SERVICE_BROKER_URL": url,
            "SERVICE_DATA_DIR": str(directory),
            "SERVICE_SHARDS": str(shards),
            "SERVICE_CONFIG": "",
        }
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SERVICE_")}
        self._environ, self._log = {**clean, **given}, directory.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([PENSTOCK, "engine"], env=self._environ, stdout=log, stderr=log)

    @property
    def pids(self) -> frozenset[int]:
        assert self._process is not None
        return descendants(self._process.pid)

    def kill(self) -> None:
        """All of it at once: no process has a chance to hand anything over."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)  # so that it does nothing while its children die
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def wait(self) -> None:
        if self._process is not None:
            self._process.wait()


SCENES = (
    Scene("kill -9 of the only shard of a host", 1, 1, lambda engine, victim: os.kill(victim.pid, signal.SIGKILL)),
    Scene("kill -9 of one of two shards of a host", 1, 2, lambda engine, victim: os.kill(victim.pid, signal.SIGKILL)),
    Scene("kill -9 of one of three hosts", 3, 1, lambda engine, victim: engine.kill()),
    Scene("SIGTERM of one of three hosts", 3, 1, lambda engine, victim: engine.terminate()),
)


@click.command(help=__doc__.splitlines()[0] if __doc__ else None, context_settings={"show_default": True})
@click.option("--times", type=click.IntRange(1, 1000), default=30, help="How many of each.")
def main(times: int) -> None:
    rows = {scene.title: sorted(uvloop.run(_measured(scene, times))) for scene in SCENES}
    click.echo(f"{'from … to progress of its runs':<40}{'p50 s':>8}{'p99 s':>8}{'max s':>8}{'times':>7}")
    for name, found in rows.items():
        click.echo(
            f"{name:<40}{percentile(found, 0.5):>8.2f}{percentile(found, 0.99):>8.2f}{found[-1]:>8.2f}{len(found):>7}"
        )


async def _measured(scene: Scene, times: int) -> list[float]:
    found = []
    async with _running(scene) as (store, engines), _echo(store):
        definition = parse({"name": "takeover", "steps": [{"id": "a", "task": TASK}]})
        digest = await store.definitions.register(definition)
        for number in range(times):
            owned = await _whole(store, scene.hosts * scene.shards)
            engine, shard = engines[number % scene.hosts], number % scene.shards
            [victim] = [member for member in owned if member.pid in engine.pids and member.shard == shard]
            await asyncio.sleep(LIVED_S / scene.shards / scene.hosts)
            began = time.monotonic()
            scene.end(engine, victim)
            run_ids = await run_operations.start_all(store, definition, digest, [Raw(b"null")] * PROBES)
            async with asyncio.timeout(ENDED_S_MAX):
                await asyncio.gather(
                    *(_ended(store, run_id) for run_id in run_ids if names.partition(run_id) in owned[victim])
                )
            found.append(time.monotonic() - began)
            print(f"{scene.title} {number + 1}: {found[-1]:.2f} s", file=sys.stderr, flush=True)
            if scene.hosts > 1:
                engine.wait()
                engine.start()
    return found


@asynccontextmanager
async def _running(scene: Scene) -> AsyncIterator[tuple[Store, list[Engine]]]:
    with tempfile.TemporaryDirectory() as name:
        broker = EmbeddedBroker(BrokerSettings(port=free_ports(1)[0], data_dir=f"{name}/broker"))
        engines = [Engine(broker.url, Path(name, f"host-{number}"), scene.shards) for number in range(scene.hosts)]
        try:
            broker.start()
            async with open_store(BrokerSettings(url=broker.url), "takeover") as store:
                await provision(store.broker, broker.settings)
                for engine in engines:
                    engine.start()
                yield store, engines
        finally:
            for engine in engines:
                engine.terminate()
            for engine in engines:
                engine.wait()
            broker.stop()


@asynccontextmanager
async def _echo(store: Store) -> AsyncIterator[None]:
    """A worker that completes every task at once."""
    async with AsyncExitStack() as stack:

        def take(delivery: Delivery) -> None:
            run_id = delivery.subject.rpartition(".")[2]
            store.history.send(StepCompleted(run_id=run_id, step_id="a", attempt_number=1))
            tasks.add(task := asyncio.ensure_future(delivery.ack()))
            task.add_done_callback(tasks.discard)

        tasks = set[asyncio.Future[None]]()
        await stack.enter_async_context(store.tasks.consume(TASK, take, batch=200, room=lambda: 200))
        yield


async def _whole(store: Store, shards: int) -> Mapping[Member, Collection[int]]:
    """The partitions of each shard, once there are so many that share them all out evenly."""
    async with asyncio.timeout(WHOLE_S_MAX):
        while True:
            view = await store.owners.read()
            members = {listed.member.id: listed.member for listed in view.members.values()}
            owned: dict[Member, set[int]] = {member: set() for member in members.values()}
            for number, claimed in view.claims.items():
                if claimed.claim.owner in members:
                    owned[members[claimed.claim.owner]].add(number)
            if len(owned) == shards and sum(map(len, owned.values())) == PARTITIONS and all(owned.values()):
                return owned
            await asyncio.sleep(0.05)


async def _ended(store: Store, run_id: str) -> None:
    async for _ in store.history.follow(run_id):
        run = (await load(store, run_id)).run
        if run is not None and run.ended:
            return


if __name__ == "__main__":
    main()
