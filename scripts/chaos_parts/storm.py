"""The storm from its first to its last moment: begin, faults over load, calm, evidence."""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import orjson
from msgspec import Struct

from penstock.broker import names
from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings
from penstock.engine.definition.http_requests import TASK as HTTP_TASK
from penstock.engine.errors import PenstockError

from .api import Api
from .checker import check
from .faults import Faults
from .gathering import Gathering
from .installation import Installation
from .ledger import Ledger, Ticks
from .places import Places
from .plan import Fault
from .report import Report, reported
from .target import serving
from .users import Users
from .workflows import CRON, DEFINITIONS, TASKS, TRIGGERS

READY_S_MAX = 60.0
CALM_S_MAX = 180.0
LOOK_S = 0.5
TASK_LEASE_S = 12  # instead of 30: what a killed worker held comes again while the storm still lasts
WORKERS = 3  # and one over the bridge


class Wanted(Struct, frozen=True):
    """What the command line asks for. `fewer` stretches the pauses of the load."""

    seed: int
    seconds: float
    faults: Sequence[Fault]
    fewer: float
    keep: Path | None


class BadStart(Exception):
    """The service did not even get ready, and nothing had been done to it; the text says why."""


async def storm(wanted: Wanted, progress: Callable[[str], None]) -> Report:
    """Play it through and say what was found; nothing of it is left running. Raises BadStart."""
    places = Places()
    with _directory(wanted.keep) as directory:
        try:
            return await _storm(wanted, directory, places, progress)
        finally:
            places.end()


async def _storm(wanted: Wanted, directory: Path, places: Places, progress: Callable[[str], None]) -> Report:
    installation = Installation(directory, places, WORKERS, wanted.seed)
    keeping = asyncio.create_task(places.keep())
    api, ledger = Api(installation.url), Ledger()
    try:
        await _ready(api, installation)
        async with open_store(BrokerSettings(url=installation.broker_url), "chaos") as store:
            await _prepare(api, store, ledger)
            async with serving(ledger, wanted.seed) as target:
                return await _weather(wanted, installation, api, store, ledger, target.url, progress)
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
) -> Report:
    gathering, faults = Gathering(store), Faults(installation)
    users = Users(api, ledger, wanted.seed, wanted.fewer, target)
    begin = time.time()
    load = asyncio.create_task(users.run())
    async with _reading(gathering):
        await faults.run(wanted.faults)
        await asyncio.sleep(max(0.0, begin + wanted.seconds - time.time()))
        end = time.time()
        users.stop()
        progress(f"calm: {faults.missed} faults found nothing to hit; waiting for what is open")
        calm = await _calm(installation, api, ledger, gathering, users, load, int(end))
    progress("reading the evidence")
    evidence = await gathering.evidence(ledger, api, installation)
    return reported(wanted.seed, wanted.faults, begin, end, calm, faults, api, gathering, evidence, check(evidence))


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
) -> float:
    """Wait until everything that was begun has ended, no longer than CALM_S_MAX; how long it took. What has not ended
    by then shows in the evidence."""
    begin = time.monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(CALM_S_MAX):
            await load
            await _stop_clock(api, ledger, gathering, last_tick)
            while gathering.open or await _queued(gathering):
                await users.following.cancel_parked()
                await asyncio.sleep(LOOK_S)
    load.cancel()
    with suppress(asyncio.CancelledError, ExceptionGroup):
        await load
    await _ready(api, installation)
    return time.monotonic() - begin


async def _queued(gathering: Gathering) -> bool:
    """Whether a task is left, perhaps only because the broker has not heard that it was answered: then it is handed out
    again."""
    try:
        return bool(await gathering.queued())
    except PenstockError:
        return True


async def _stop_clock(api: Api, ledger: Ledger, gathering: Gathering, last_tick: int) -> None:
    """Once the cron trigger has made up for everything up to this second, disable it."""
    assert ledger.ticks is not None
    ledger.ticks.last = last_tick
    while gathering.last_tick < last_tick:  # noqa: ASYNC110 - the log is read at its own pace
        await asyncio.sleep(LOOK_S)
    trigger = next(one for one in TRIGGERS if one["name"] == CRON)
    await api.insist("PUT", f"/triggers/{CRON}", orjson.dumps({**trigger, "enabled": False}))


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    """An empty directory, which is gone at the end of the block unless it was named."""
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="penstock-chaos-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@asynccontextmanager
async def _reading(gathering: Gathering) -> AsyncIterator[None]:
    """The log is read as it grows, for the time of the block and once more at its end."""
    reading = asyncio.create_task(_read(gathering))
    try:
        yield
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
    await gathering.read_on()


async def _read(gathering: Gathering) -> None:
    while True:
        with suppress(PenstockError):
            await gathering.read_on()
        await asyncio.sleep(LOOK_S)


async def _ready(api: Api, installation: Installation) -> None:
    deadline = time.monotonic() + READY_S_MAX
    while not await api.ready():
        if time.monotonic() > deadline:
            raise BadStart(f"the service did not get ready; its log ends with:\n{installation.last_words()}")
        await asyncio.sleep(LOOK_S / 10)
