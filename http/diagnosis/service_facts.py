"""Reads what the checks of the service look at. Nothing is kept between two readings."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from penstock.actors.diagnosis.registrations import Registrations, registrations
from penstock.broker import names
from penstock.broker.inspection.consumer_list import ListedConsumer, consumers_of, messages_in
from penstock.broker.nats.connection import Broker, address
from penstock.broker.nats.errors import Within
from penstock.broker.store import Store
from penstock.broker.streams.task_queues import TaskQueue, task_queues
from penstock.broker.streams.telemetry import ProcessReport
from penstock.config.limits import PARTITIONS
from penstock.config.process.background import all_of, both
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import PenstockError, Unavailable
from penstock.engine.waiting.facts import TaskKind
from penstock.http.backend import Backend
from penstock.http.diagnosis.checks.facts import PartitionLag, ServiceFacts, UnreadConsumer, WaitingQueue
from penstock.http.diagnosis.limit_facts import waited_limits
from penstock.http.system.health import triggers_run, unowned
from penstock.http.system.storage import StorageHealth, storage

ANSWERS_S_MAX = 0.3
BROKER_S_MAX = 1.5
READ_S_MAX = 2.5  # for everything, from the first question on
QUEUES_MAX = 1000
# What to do when the broker does not answer, by whether it is the service's own.
_REMEDY = {
    True: "is it running? `penstock serve` starts it again when it has ended, and says in its log why it has",
    False: "is it running, and can this machine reach it? If it has moved, set broker_url (docs/settings.md)",
}


_NO_MORE = f"the broker has answered at first, and then not within {READ_S_MAX:g} s"


class _FactSource(NamedTuple):
    """One thing that is read: `read` returns fields of ServiceFacts, and `checks` need these."""

    read: Callable[[Backend, Store], Awaitable[Mapping[str, Any]]]
    checks: tuple[str, ...]


async def answering_store(backend: Backend) -> Store:
    """The store, whose broker has just answered. Raises Unavailable, which says what to do, within BROKER_S_MAX."""
    try:
        store = backend.store
        await store.broker.api("INFO", timeout_s=BROKER_S_MAX)
    except Unavailable as error:
        raise Unavailable(
            f"the broker does not answer at {address(backend.settings)}: {_REMEDY[backend.settings.embedded]} ({error})"
        ) from error
    return store


def within(begin: float) -> Within:
    """Raises Unavailable when what began at `begin` (monotonic) has taken READ_S_MAX."""
    return Within(begin + READ_S_MAX - time.monotonic(), _NO_MORE)


async def service_facts(backend: Backend, health: StorageHealth) -> ServiceFacts:
    """Everything, read at about the same time. What is not answered within READ_S_MAX is missing, and the checks that
    need it are named. Raises Unavailable when the broker does not answer at all."""
    begin = time.monotonic()
    store, settings = await answering_store(backend), backend.settings
    fields: dict[str, Any] = {}
    unknown: dict[str, str] = {}

    async def take(source: _FactSource) -> None:
        try:
            async with within(begin):
                fields.update(await source.read(backend, store))
        except PenstockError as error:
            unknown.update(dict.fromkeys(source.checks, str(error)))

    async def stored(backend: Backend, store: Store) -> Mapping[str, Any]:
        (used, limit), problem = await both(storage(store, settings), health.problem())
        return {"used": used, "limit": limit, "storage": problem}

    await all_of(map(take, (_FactSource(stored, ("storage",)), *_SOURCES)))
    return ServiceFacts(
        fsync=settings.fsync if settings.embedded else "",
        disk=await asyncio.to_thread(_disk, settings),
        unknown=unknown,
        **fields,
    )


def _disk(settings: BrokerSettings) -> tuple[int, int] | None:
    if not settings.embedded:
        return None
    try:
        found = shutil.disk_usage(settings.data_dir)
    except OSError:
        return None
    return found.free, found.total


async def _index(backend: Backend, store: Store) -> Mapping[str, Any]:
    """Whether the run index is followed, and how far it is behind."""
    tip = await store.history.tip()
    try:
        progress = backend.index.progress()
    except Unavailable:
        return {"index_alive": False}
    behind = max(0, tip.seq - progress.seq)
    return {
        "index_alive": backend.index.alive(),
        "index_behind": behind,
        "index_behind_s": max(0.0, tip.at - progress.as_of) if behind else 0.0,
    }


async def _engines(backend: Backend, store: Store) -> Mapping[str, Any]:
    missing, runs = await both(unowned(store.broker), triggers_run(store.broker))
    await store.broker.api("INFO")  # only then do answers that have not come mean something
    return {"unowned": frozenset(missing), "triggers_run": runs}


async def _dead_letters(backend: Backend, store: Store) -> Mapping[str, Any]:
    return {"dead_letters": await messages_in(store.broker, names.DEAD)}


async def _limits(backend: Backend, store: Store) -> Mapping[str, Any]:
    return {"limits": await waited_limits(store)}


async def _waiting(backend: Backend, store: Store) -> Mapping[str, Any]:
    return {"queues": tuple(await _queues(store))}


async def _queues(store: Store) -> list[WaitingQueue]:
    found, workers = await both(task_queues(store.broker), registrations(store))
    asked = {names.task_of(one.filter): one.progress.asked for one in await consumers_of(store.broker, names.TASKS)}
    return [_queue(one, workers, asked.get((one.task, one.group), False)) for one in found[:QUEUES_MAX]]


def _queue(one: TaskQueue, workers: Registrations, asked: bool) -> WaitingQueue:
    kind: TaskKind = (one.task, one.group)
    return WaitingQueue(kind, one.waiting, one.in_hand, len(workers.serving(kind)), asked, one.oldest_at)


async def _unread(backend: Backend, store: Store) -> Mapping[str, Any]:
    """Consumers of triggers and of other programs on the streams of events, with messages that nobody requests."""
    streams = [names.EVENTS, *await _captures(store.broker)]
    found = await all_of(consumers_of(store.broker, stream) for stream in streams)
    idle = (one for each in found for one in each if _idle(one))
    return {"unread": tuple(UnreadConsumer(one.stream, one.name, one.progress.pending) for one in idle)}


def _idle(one: ListedConsumer) -> bool:
    return one.progress.pending > 0 and not one.progress.asked and not one.progress.in_hand


async def _captures(broker: Broker) -> Sequence[str]:
    """The streams of subjects that triggers listen to, and that of their batches."""
    listed = await broker.api("STREAM.NAMES")
    return [
        name for name in listed.get("streams") or [] if name.startswith(names.CAPTURE_PREFIX) or name == names.BATCHES
    ]


async def _lags(backend: Backend, store: Store) -> Mapping[str, Any]:
    view, consumers = await both(store.owners.read(), consumers_of(store.broker, names.HISTORY))
    current = {claimed.claim.consumer for claimed in view.claims.values()}
    now = await store.history.now()

    async def one(listed: ListedConsumer) -> PartitionLag | None:
        engines = names.engine_consumer_in(listed.name)
        if (
            engines is None
            or (first := await store.history.first_in(engines.partition, listed.progress.delivered + 1)) is None
        ):
            return None
        return PartitionLag(
            names.partition_in(first.subject),
            listed.progress.pending,
            max(0.0, now - first.at),
            PARTITIONS if engines.partition is None else 1,
        )

    found = await all_of(one(listed) for listed in consumers if listed.name in current and listed.progress.pending)
    return {"lags": tuple(lag for lag in found if lag is not None)}


async def _processes(backend: Backend, store: Store) -> Mapping[str, Any]:
    """How far the clock of each process is ahead of the broker's, and which versions they and the workers have."""
    before, tip_at = time.time(), await store.history.now()
    asked_at = time.time()
    brokers_s = _outside(tip_at, before, asked_at)  # the broker's clock is so far ahead of this process's
    others, workers = await both(store.telemetry.ask(ANSWERS_S_MAX), registrations(store))
    first, last = asked_at + brokers_s, time.time() + brokers_s
    await store.broker.api("INFO")
    clocks = {"this front end": -brokers_s}
    for report in others:
        written_at = datetime.fromisoformat(report.at).timestamp()
        clocks[f"{report.process} on {report.host}"] = _outside(written_at, first, last)
    return {"clocks": clocks, "versions": _versions([*backend.numbers.reports(), *others], workers)}


def _outside(at: float, first: float, last: float) -> float:
    """How far a time lies after (or, negative, before) the span in which it was taken; 0 within."""
    return min(0.0, at - first) or max(0.0, at - last)


def _versions(reports: Iterable[ProcessReport], workers: Registrations) -> dict[str, tuple[str, ...]]:
    """Who has which version: processes of the service, and workers of the Python SDK."""
    found: dict[str, dict[str, None]] = {}
    for report in reports:
        if report.version:
            found.setdefault(report.version, {})[f"{report.process} on {report.host}"] = None
    for worker in workers.workers.values():
        if worker.entry.language == "python" and worker.entry.version:
            found.setdefault(worker.entry.version, {})[f"worker {worker.entry.worker_id}"] = None
    return {version: tuple(who) for version, who in found.items()}


_SOURCES = (
    _FactSource(_waiting, ("consumers", "tasks_without_workers")),
    _FactSource(_unread, ("consumers",)),
    _FactSource(_engines, ("engines",)),
    _FactSource(_processes, ("clock", "versions")),
    _FactSource(_lags, ("engine_lag",)),
    _FactSource(_limits, ("limits",)),
    _FactSource(_dead_letters, ("dead_letters",)),
    _FactSource(_index, ("index",)),
)
