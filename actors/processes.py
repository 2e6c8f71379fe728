"""What runs in the engine's child processes: a shard, or the follower of the run index. Each ends in peace on SIGTERM."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable

import structlog
import uvloop

from penstock.actors.index_file import index_path
from penstock.actors.index_follower import follow_when_free
from penstock.actors.leaf_watch import watch_links
from penstock.actors.placement import owned, refuse_second_owner
from penstock.actors.relay import Relay
from penstock.actors.shard import open_shard
from penstock.actors.telemetry import Numbers, reporting, secret_values
from penstock.actors.triggers import keep_triggers
from penstock.actors.upkeep import keep_up
from penstock.broker.store import open_store
from penstock.config.logging import configure
from penstock.config.settings import Settings
from penstock.engine.errors import Conflict, Denied, Invalid, Unavailable

PR_SET_PDEATHSIG = 1
BROKER_PATIENCE_S = 60.0
INDEX_NICENESS = 10

log = structlog.get_logger()


def run_shard(settings: Settings, number: int, relay: Relay | None, parent: int) -> None:
    """One shard: the actors of the runs in its partitions. With a `relay` it reports for the supervisor, too."""
    # Hundreds of thousands of live objects: the collector's full passes would cost more than they find.
    gc.set_threshold(100_000, 50, 100)
    _main(settings, f"shard-{number}", parent, lambda stop: _shard(settings, number, relay, stop))


def run_services(settings: Settings, relay: Relay, triggers: bool, parent: int) -> None:
    """The run index's follower, upkeep, and perhaps the triggers. It yields to the processes that move runs: readers wait for it,
    runs do not."""
    os.nice(INDEX_NICENESS)
    _main(settings, "services", parent, lambda stop: _services(settings, relay, triggers, stop))


def run_triggers(settings: Settings, parent: int) -> None:
    """The triggers alone, where no other services run."""
    _main(settings, "triggers", parent, lambda stop: _triggers(settings, stop))


async def _shard(settings: Settings, number: int, relay: Relay | None, stop: asyncio.Event) -> None:
    partitions = owned(number, settings.engine.shards)
    async with open_store(settings.broker, f"shard-{number}", BROKER_PATIENCE_S) as store:
        await refuse_second_owner(store, partitions)
        numbers = Numbers(f"shard-{number}", store.meters, relay)
        async with (
            reporting(store, numbers, secret_values(settings)),
            open_shard(store, number, partitions, settings.telemetry.sample_ratio),
        ):
            await stop.wait()


async def _services(settings: Settings, relay: Relay, triggers: bool, stop: asyncio.Event) -> None:
    index = index_path(settings.broker.data_dir)
    async with (
        open_store(settings.broker, "services", BROKER_PATIENCE_S) as store,
        reporting(store, Numbers("services", store.meters, relay), secret_values(settings)),
        asyncio.TaskGroup() as group,
    ):
        tasks = [
            group.create_task(follow_when_free(store, index)),
            group.create_task(keep_up(store, index, settings.broker.runs_max_age)),
        ]
        if triggers:
            tasks.append(group.create_task(keep_triggers(store)))
        if settings.broker.embedded and settings.broker.leaf_remotes:
            tasks.append(group.create_task(watch_links(settings.broker)))
        await stop.wait()
        for task in tasks:
            task.cancel()


async def _triggers(settings: Settings, stop: asyncio.Event) -> None:
    async with (
        open_store(settings.broker, "triggers", BROKER_PATIENCE_S) as store,
        reporting(store, Numbers("triggers", store.meters, None), secret_values(settings)),
        asyncio.TaskGroup() as group,
    ):
        task = group.create_task(keep_triggers(store))
        await stop.wait()
        task.cancel()


def _main(settings: Settings, name: str, parent: int, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    _die_with(parent)
    configure(settings.log, name)
    os.setpgid(0, 0)  # Ctrl-C goes to the whole group; the supervisor decides the order
    try:
        uvloop.run(_until_stopped(work))
    except (Unavailable, Conflict, Denied, Invalid) as error:
        log.error("process_gave_up", error=str(error))
        sys.exit(1)


async def _until_stopped(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await work(stop)


def _die_with(parent: int) -> None:
    """End when the supervisor does, however it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(1)
