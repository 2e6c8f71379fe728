"""What runs in the engine's child processes: a shard, the services, or the triggers. Each stops cleanly on SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from typing import Any

import uvloop

from penstock.actors.index.file import index_path
from penstock.actors.index.follower import follow_when_free
from penstock.actors.index.run_index import RunIndex
from penstock.actors.maintenance.archiving import apply_archiving
from penstock.actors.maintenance.away_workers import watch_away_workers
from penstock.actors.maintenance.former_names import watch_former_names
from penstock.actors.maintenance.lost_tasks import watch_lost_tasks
from penstock.actors.maintenance.orphaned_tasks import watch_orphaned_tasks
from penstock.actors.maintenance.overdue import watch_overdue_schedules
from penstock.actors.maintenance.retention import apply_retention
from penstock.actors.maintenance.unserved import watch_unserved_tasks
from penstock.actors.ownership.membership import new_member
from penstock.actors.ownership.ownership import open_shard
from penstock.actors.ownership.places import free_places, occupied
from penstock.actors.processes.leaf_watch import watch_links
from penstock.actors.runs.loading import load_many
from penstock.actors.telemetry.exporting import exporting
from penstock.actors.telemetry.relay import Relay
from penstock.actors.telemetry.telemetry import Numbers, reporting, secret_values
from penstock.actors.triggers.trigger_runner import serve_triggers
from penstock.broker.records.owners import Member
from penstock.broker.store import Store, open_store
from penstock.config.log_setup import configure
from penstock.config.logging import get_logger
from penstock.config.process.background import first_of, restarting
from penstock.config.settings import Settings
from penstock.engine.errors import Conflict, Denied, Invalid, Unavailable

BROKER_WAIT_S = 60.0  # for the first connection
RECONNECT_WAIT_S = 5.0  # of one attempt to reach a broker that was there before
RECONNECT_PAUSE_S = 0.5  # before the next attempt
# Hundreds of thousands of live objects: the collector's full passes would cost more than they find.
GC_THRESHOLD = (100_000, 50, 100)
ENGINE_WIDE = {
    "triggers": serve_triggers,
    "lost_tasks": watch_lost_tasks,
    "orphaned_tasks": watch_orphaned_tasks,
    "overdue_schedules": watch_overdue_schedules,
    "former_names": watch_former_names,
    "unserved_tasks": watch_unserved_tasks,
    "away_workers": watch_away_workers,
}

Loop = Callable[[], Coroutine[Any, Any, object]]

log = get_logger()


def run_shard(settings: Settings, number: int, engine: str, relay: Relay | None) -> None:
    """One shard of this engine: the actors of the runs in its partitions. With a `relay` it reports for the supervisor,
    too."""
    gc.set_threshold(*GC_THRESHOLD)
    _main(settings, f"shard-{number}", lambda stop: _shard(settings, number, engine, relay, stop))


def run_services(settings: Settings, relay: Relay, triggers: bool) -> None:
    """The run index's follower, retention, and triggers if asked for. Its priority is that of shards: it needs little,
    and at a lower one a busy machine leaves lists seconds behind."""
    gc.set_threshold(*GC_THRESHOLD)
    _main(settings, "services", lambda stop: _services(settings, relay, triggers, stop))


def run_triggers(settings: Settings) -> None:
    """The triggers alone, where no other services run."""
    _main(settings, "triggers", lambda stop: _triggers(settings, stop))


async def _shard(settings: Settings, number: int, engine: str, relay: Relay | None, stop: asyncio.Event) -> None:
    """Run one life of the shard after another, each with its own connection, which ends with the lease of that life."""
    with occupied(settings.broker.data_dir) as place:
        wait_s, logged = BROKER_WAIT_S, False
        while not stop.is_set():
            try:
                await _life(settings, new_member(place, number, engine), relay, stop, wait_s)
                logged = False
            except Unavailable as error:
                if wait_s == BROKER_WAIT_S:  # the broker was never reached
                    raise
                if not logged:  # once, not at each attempt
                    log.warning("shard_waits_for_broker", shard=number, error=str(error))
                logged = True
                await asyncio.sleep(RECONNECT_PAUSE_S)
            wait_s = RECONNECT_WAIT_S


async def _life(settings: Settings, me: Member, relay: Relay | None, stop: asyncio.Event, wait_s: float) -> None:
    """Run until the shard is to stop, or has lost its lease. Raises Unavailable."""
    process = f"shard-{me.shard}"
    engine, data_dir = settings.engine, settings.broker.data_dir
    async with (
        _store(settings, process, wait_s) as store,
        _telemetry(settings, store, process, relay),
        open_shard(
            store, me, settings.telemetry.sample_ratio, siblings=engine.shards, dead=lambda: free_places(data_dir)
        ) as shard,
    ):
        await first_of(stop.wait(), shard.lease.over.wait(), name="shard_life")


async def _services(settings: Settings, relay: Relay, triggers: bool, stop: asyncio.Event) -> None:
    index = index_path(settings.broker.data_dir)
    async with (
        _store(settings, "services", BROKER_WAIT_S) as store,
        _telemetry(settings, store, "services", relay),
        AsyncExitStack() as stack,
    ):
        loops: dict[str, Loop] = {
            "run_index": lambda: follow_when_free(store, index, partial(load_many, by_index=False)),
            "retention": lambda: apply_retention(store, index, settings.broker.runs_max_age),
            "archiving": lambda: apply_archiving(store, index, settings.broker.archive_after),
        }
        if settings.broker.embedded and settings.broker.leaf_remotes:
            loops["leaf_links"] = lambda: watch_links(settings.broker)
        await _keep(stack, loops | (_engine_wide(store) if triggers else {}))
        await stop.wait()


async def _triggers(settings: Settings, stop: asyncio.Event) -> None:
    async with (
        _store(settings, "triggers", BROKER_WAIT_S) as store,
        _telemetry(settings, store, "triggers", None),
        AsyncExitStack() as stack,
    ):
        await _keep(stack, _engine_wide(store))
        await stop.wait()


@asynccontextmanager
async def _store(settings: Settings, process: str, wait_s: float) -> AsyncIterator[Store]:
    """The store of this process, for the time of the block; it finds archived runs in this host's run index."""
    async with open_store(settings.broker, process, wait_s) as store:
        with closing(RunIndex(index_path(settings.broker.data_dir))) as index:
            store.archive.places = index.archived
            yield store


@asynccontextmanager
async def _telemetry(settings: Settings, store: Store, process: str, relay: Relay | None) -> AsyncIterator[None]:
    """The telemetry of this process, for the time of the block."""
    numbers = Numbers(process, store.meters, relay)
    secrets = secret_values(settings)
    async with reporting(store, numbers, secrets), exporting(store, numbers, settings.telemetry, secrets):
        yield


def _engine_wide(store: Store) -> dict[str, Loop]:
    return {name: partial(work, store) for name, work in ENGINE_WIDE.items()}


async def _keep(stack: AsyncExitStack, loops: Mapping[str, Loop]) -> None:
    """Run all loops until the stack is left. A loop that fails is restarted; the others go on."""
    for name, loop in loops.items():
        await stack.enter_async_context(restarting(loop, name=name))


def _main(settings: Settings, name: str, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    configure(settings.log, name)
    reasons: list[str] = []
    try:
        uvloop.run(_until_stopped(work))
    except* (Unavailable, Conflict, Denied, Invalid) as group:  # several jobs of one process raise a group
        reasons = list(_reasons(group))
    for reason in reasons:
        log.error("process_gave_up", error=reason)
    if reasons:
        sys.exit(1)


def _reasons(error: BaseException) -> Iterator[str]:
    """The texts of all errors in nested groups."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _reasons(one)
    else:
        yield str(error)


async def _until_stopped(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await work(stop)
