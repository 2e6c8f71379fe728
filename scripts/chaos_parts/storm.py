"""The storm from its first to its last moment: begin, faults over load, calm, evidence."""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson
from msgspec import Struct

from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.definition.http_requests import TASK as HTTP_TASK

from .api import Api
from .backups import Backup, take
from .calm import LOOK_S, READY_AGAIN_S_MAX, BadStart, queued, reading, ready, stop_clock
from .checker import check, check_open
from .evidence import Violation
from .executions import read_all
from .faults import Faults
from .gathering import Gathering
from .installation import Installation, archives
from .ledger import Ledger, Ticks
from .places import Places
from .plan import Fault
from .report import Report, reported, with_restored
from .restored import restored
from .target import serving
from .users import Users
from .workflows import DEFINITIONS, TASKS, TRIGGERS

CALM_S_MAX = 180.0
ARCHIVED_MIN, ARCHIVED_S_MAX = 50, 90.0
TASK_LEASE_S = 12  # instead of 30: what a killed worker held comes again while the storm still lasts
WORKERS = 3  # and one over the bridge


class Wanted(Struct, frozen=True):
    """What the command line asks for. `fewer` stretches the pauses of the load."""

    seed: int
    seconds: float
    faults: Sequence[Fault]
    fewer: float
    keep: Path | None


async def storm(wanted: Wanted, progress: Callable[[str], None]) -> Report:
    """Play it through and say what was found; nothing of it is left running. Raises BadStart."""
    places = Places()
    with _directory(wanted.keep) as directory:
        try:
            return await _storm(wanted, directory, places, progress)
        finally:
            places.end()


async def _storm(wanted: Wanted, directory: Path, places: Places, progress: Callable[[str], None]) -> Report:
    ledger = Ledger()
    async with serving(ledger, wanted.seed) as target:
        report, backup = await _stormy(wanted, directory, places, ledger, target.url, progress)
        places.end()
        if backup is None:
            violations = [Violation("backup", "none could be made")]
            return with_restored(report, violations, {}, {})
        progress(f"restoring the backup, which was made at try {backup.tries}")
        return with_restored(
            report,
            *await restored(backup, ledger, read_all(directory / "executions"), directory / "restored", wanted.seed),
        )


async def _stormy(
    wanted: Wanted, directory: Path, places: Places, ledger: Ledger, target: str, progress: Callable[[str], None]
) -> tuple[Report, Backup | None]:
    installation = Installation(directory, places, WORKERS, wanted.seed)
    keeping = asyncio.create_task(places.keep())
    api = Api(installation.url)
    try:
        await ready(api, installation)
        async with open_store(BrokerSettings(url=installation.broker_url), "chaos") as store:
            await _prepare(api, store, ledger)
            return await _weather(wanted, installation, api, store, ledger, target, progress)
    finally:
        keeping.cancel()
        api.close()


async def _weather(
    wanted: Wanted,
    installation: Installation,
    api: Api,
    store: Store,
    ledger: Ledger,
    target: str,
    progress: Callable[[str], None],
) -> tuple[Report, Backup | None]:
    gathering, faults = Gathering(store), Faults(installation)
    users = Users(api, ledger, wanted.seed, wanted.fewer, target)
    begin = time.time()
    load = asyncio.create_task(users.run())
    copying = asyncio.create_task(_copied(wanted, installation, ledger))
    try:
        async with reading(gathering):
            await faults.run(wanted.faults)
            await asyncio.sleep(max(0.0, begin + wanted.seconds - time.time()))
            end = time.time()
            users.stop()
            progress(f"calm: {faults.missed} faults found nothing to hit; waiting for what is open")
            calm_s, over = await _calm(installation, api, ledger, gathering, users, load, int(end))
            if archives(wanted.seed):
                await _some_are_archived(gathering)
        backup = await copying
    finally:
        copying.cancel()
    progress("reading the evidence")
    evidence = await gathering.evidence(ledger, api, installation)
    violations = check(evidence) if over else check_open(evidence, calm_s)
    report = reported(wanted.seed, wanted.faults, begin, end, calm_s, faults, api, gathering, evidence, violations)
    return report, backup


async def _copied(wanted: Wanted, installation: Installation, ledger: Ledger) -> Backup | None:
    """A backup of the middle of the storm."""
    await asyncio.sleep(wanted.seconds / 2)
    return await take(installation, ledger, installation.directory)


async def _prepare(api: Api, store: Store, ledger: Ledger) -> None:
    for task in (*TASKS, HTTP_TASK):
        await _lease(store, task)
    for path, documents in (("/workflows", DEFINITIONS), ("/triggers", TRIGGERS)):
        for document in documents:
            heard = await api.insist("POST", path, orjson.dumps(document))
            if heard.status != 201:
                raise BadStart(f"{document['name']} was answered {heard.text}")
    ledger.ticks = Ticks(math.ceil(time.time()) + 1, 0)


async def _lease(store: Store, task: str) -> None:
    """The durable that the workers of this type share, made before them, with a shorter lease."""
    name = names.task_consumer(task)
    config = {
        "name": name,
        "durable_name": name,
        "ack_policy": "explicit",
        "ack_wait": TASK_LEASE_S * 10**9,
        "max_ack_pending": -1,
        "filter_subject": names.task_filter(task),
    }
    await store.broker.api(f"CONSUMER.CREATE.{names.TASKS}.{name}", {"stream_name": names.TASKS, "config": config})


async def _calm(
    installation: Installation,
    api: Api,
    ledger: Ledger,
    gathering: Gathering,
    users: Users,
    load: asyncio.Task[None],
    last_tick: int,
) -> tuple[float, bool]:
    """Wait until everything that was begun has ended, no longer than CALM_S_MAX after the service is ready: how many
    seconds it took, and whether all of it has."""
    begin, over = time.monotonic(), False
    await ready(api, installation, READY_AGAIN_S_MAX)
    with suppress(TimeoutError):
        async with asyncio.timeout(CALM_S_MAX):
            await load
            await stop_clock(api, ledger, gathering, last_tick)
            while gathering.open or await queued(gathering) or gathering.slots_in_use:
                await users.following.cancel_parked()
                await users.operators.end_pauses(gathering.paused)
                await asyncio.sleep(LOOK_S)
            over = True
    load.cancel()
    with suppress(asyncio.CancelledError, ExceptionGroup):
        await load
    await ready(api, installation)
    return time.monotonic() - begin, over


async def _some_are_archived(gathering: Gathering) -> None:
    """Give the service time for it: on a busy machine it archives little."""
    with suppress(TimeoutError):
        async with asyncio.timeout(ARCHIVED_S_MAX):
            while len(gathering.archived) < ARCHIVED_MIN:  # noqa: ASYNC110 - the log is read at its own pace
                await asyncio.sleep(LOOK_S)


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    """An empty directory, which is gone at the end of the block unless it was named."""
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="penstock-chaos-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)
