"""The environment of a workload: a new service, its workers, a client, a reader of the log; and the measured cost."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from penstock.broker.store import Store, open_store
from penstock.config.settings import BrokerSettings

from .bulk import start_all
from .chain import NAME, bridge_workers, definition, workers
from .client import Client
from .counts import Counts
from .log import Log
from .processes import Busy, Roles, busy, cpu_s, memory_bytes, pace_ms
from .service import Service, service

STEPS = 3
EVENTS_PER_RUN = 2 + STEPS  # at least: workers report the starts of longer executions, too
WARM_RUNS = 200
REQUEST_S_MAX = 600.0
BRIDGE_TOKEN = "bench"


class Sizes(Struct, frozen=True, kw_only=True):
    """How much is done in one repeat of each workload."""

    bulk: int = 20_000
    accept: int = 20_000
    latency: int = 1_000
    closed: int = 8_000
    full: int = 50_000
    parked: int = 100_000
    fsync: int = 3_000
    bridge: int = 2_000
    scheduled: int = 10_000
    killed: int = 10_000
    burst: int = 5_000
    elements: int = 10_000
    mapped: int = 20_000
    children: int = 1_000
    calls: int = 5_000
    clients: int = 1_000
    waiting: int = 10_000
    due: int = 10_000
    explained: int = 2_000
    expressions: int = 2_000
    rerun: int = 1_000
    pruned: int = 2_000
    exported: int = 8_000
    paused: int = 1_000
    cancelled: int = 300
    indexed: int = 1_000_000
    said: int = 400_000
    followed: int = 50
    late: int = 100_000
    reads: int = 20_000
    pages: int = 3
    chained: int = 1_000
    limited: int = 20_000
    admitted: int = 50
    rated_s: float = 20.0
    reloads: int = 10
    kept: int = 1_000_000
    kept_workflows: int = 100
    kept_wait_s: float = 300.0  # from the end of its load until memory and disk are taken
    kept_pairs: int = 8
    archived: int = 100_000
    archive_after_s: int = 200  # at least; always longer than their load
    scaled: int = 5_000  # runs for each shard process: of fewer, the largest share of one is too far above the others
    shaped: int = 30_000  # steps
    queued: int = 100_000
    scrapes: int = 50
    listings: int = 300
    left_s: float = 50.0  # after which runs that nothing happens to have left the engine's memory
    idle_wait_s: float = 60.0
    idle_s: float = 30.0


QUICK = Sizes(
    bulk=300,
    accept=1000,
    latency=30,
    closed=100,
    full=300,
    parked=300,
    fsync=100,
    bridge=100,
    scheduled=100,
    killed=300,
    burst=50,
    elements=200,
    mapped=50,
    children=20,
    calls=100,
    clients=100,
    waiting=100,
    due=100,
    explained=50,
    expressions=50,
    rerun=20,
    pruned=300,
    exported=200,
    paused=20,
    cancelled=20,
    indexed=3_000,
    said=800,
    followed=2,
    reads=200,
    pages=1,
    chained=40,
    late=1_000,
    limited=300,
    admitted=5,
    rated_s=4.0,
    reloads=2,
    left_s=3.0,
    idle_wait_s=0.5,
    idle_s=0.5,
    kept=200,
    kept_workflows=4,
    kept_wait_s=0.5,
    kept_pairs=2,
    archived=200,
    archive_after_s=5,
    scaled=50,
    shaped=202,
    queued=40,
    scrapes=3,
    listings=12,
)


class Setup(Struct, frozen=True):
    """What all workloads share. `shards` None: the service's default. `directory` is theirs, and is removed at the
    end. `kept`: workloads that need no service of their own share this one, when nothing is measured."""

    sizes: Sizes
    shards: int | None
    directory: Path
    kept: Kept | None = None


class Cost(NamedTuple):
    """What a stretch of work took: CPU per run by role, in µs. `noise`: which shares of the machine went to others and
    were stolen by its host, and how long a fixed piece of work took at that time."""

    cpu_us: Mapping[str, float]
    noise: Mapping[str, float]


class Environment:
    """Owned by `environment`, for one repeat of one workload."""

    def __init__(self, ours: Service, worker_pids: list[int], client: Client, log: Log, store: Store) -> None:
        self.service, self.client, self.log, self.store = ours, client, log, store
        self.roles: Roles = {**ours.roles, "worker": frozenset(worker_pids), "load": frozenset({os.getpid()})}

    async def start_all(self, runs: int, workflow: str = NAME) -> tuple[list[str], Counts]:
        """Start runs in bulk. Raises RuntimeError when the service did not take all of them."""
        counts = Counts(runs)
        run_ids = await start_all(self.client, counts, runs, REQUEST_S_MAX, workflow)
        if len(run_ids) != runs:
            raise RuntimeError(f"{len(run_ids)} of {runs} runs were accepted: {dict(counts.errors)}")
        return run_ids, counts

    async def drain(self, runs: int, workflow: str = NAME) -> tuple[list[str], float]:
        """Start runs in bulk and wait until the log says that all have ended; their ids, and when the first request
        left. The workflow has STEPS steps."""
        before = await self.log.messages()
        begin = time.time()
        run_ids, _ = await self.start_all(runs, workflow)
        await self.log.until_quiet(before + runs * EVENTS_PER_RUN)
        return run_ids, begin

    def memory_mb(self) -> dict[str, float]:
        return {role: memory_bytes(pids) / 1e6 for role, pids in self.service.roles.items()}

    def service_us(self, cost: Cost) -> float:
        """The CPU of the service's own processes, without workers and load."""
        return sum(us for role, us in cost.cpu_us.items() if role in self.service.roles)

    @contextmanager
    def measured(self, row: str, runs: float) -> Iterator[dict[str, Cost]]:
        """What the block cost, under `row`, is there at its end."""
        costs: dict[str, Cost] = {}
        pace = pace_ms()
        before, machine, begin = self._cpu_s(), busy(), time.monotonic()
        yield costs
        available_s = (time.monotonic() - begin) * len(os.sched_getaffinity(0))
        used = {role: now - before[role] for role, now in self._cpu_s().items()}
        costs[row] = _cost(
            used, runs, _shares(machine, busy(), sum(used.values()), available_s), (pace + pace_ms()) / 2
        )

    def _cpu_s(self) -> dict[str, float]:
        return {role: cpu_s(pids) for role, pids in self.roles.items()}


class Kept:
    """An environment for several workloads, one after the other. Owned by `sharing`; made when the first one needs
    it."""

    def __init__(self, setup: Setup, stack: AsyncExitStack) -> None:
        self._setup, self._stack = setup, stack
        self._made: Environment | None = None

    async def environment(self) -> Environment:
        if self._made is None:
            self._made = await self._stack.enter_async_context(environment(self._setup))
        return self._made


@asynccontextmanager
async def sharing(setup: Setup) -> AsyncIterator[Setup]:
    """The setup for the time of the block, in which workloads share a service, unless they need one of their own."""
    async with AsyncExitStack() as stack:
        yield replace(setup, kept=Kept(setup, stack))


@asynccontextmanager
async def environment(
    setup: Setup,
    *,
    alone: bool = False,
    shards: int | None = None,
    fsync: str | None = None,
    worker_count: int = 1,
    data: Path | None = None,
    bridge: bool = False,
    otlp_endpoint: str | None = None,
) -> AsyncIterator[Environment]:
    """An environment for the time of the block, with nothing left of it. `data` is a data directory to begin with; it
    is copied. `alone`: it is not shared with other workloads, as is none with options."""
    options = (shards, fsync, data, otlp_endpoint) != (None, None, None, None) or bridge or worker_count != 1
    if setup.kept is not None and not (alone or options):
        yield await setup.kept.environment()
        return
    with tempfile.TemporaryDirectory(dir=setup.directory) as directory:
        if data is not None:
            shutil.copytree(data, Path(directory, "data"))
        async with environment_in(
            Path(directory),
            setup,
            shards=shards,
            fsync=fsync,
            worker_count=worker_count,
            bridge=bridge,
            otlp_endpoint=otlp_endpoint,
        ) as on:
            yield on


@asynccontextmanager
async def environment_in(
    directory: Path,
    setup: Setup,
    *,
    shards: int | None = None,
    fsync: str | None = None,
    worker_count: int = 1,
    bridge: bool = False,
    otlp_endpoint: str | None = None,
    archive_after: str | None = None,
) -> AsyncIterator[Environment]:
    """An environment whose data stay in `directory`. When it has workers, everything has been used once before the
    block begins; `bridge` says that they come over HTTP."""
    token = BRIDGE_TOKEN if bridge else None
    own = service(
        directory, shards or setup.shards, fsync, token, otlp_endpoint=otlp_endpoint, archive_after=archive_after
    )
    async with own as ours:
        with (
            bridge_workers(worker_count, ours.url, BRIDGE_TOKEN)
            if bridge
            else workers(worker_count, ours.broker_url) as pids
        ):
            async with open_store(BrokerSettings(url=ours.broker_url), "bench") as store:
                client = Client(ours.url)
                yield await _prepared(Environment(ours, pids, client, Log(store), store))
                client.close()


@contextmanager
def setup(sizes: Sizes, shards: int | None) -> Iterator[Setup]:
    """A directory for all environments; it is removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        yield Setup(sizes, shards, Path(directory))


async def _prepared(environment: Environment) -> Environment:
    await environment.client.register(definition(STEPS))
    if environment.roles["worker"]:
        await environment.drain(WARM_RUNS)
    return environment


def _shares(before: Busy, after: Busy, ours_s: float, available_s: float) -> dict[str, float]:
    others_s = max(0.0, after.used - before.used - ours_s)
    return {"others": others_s / available_s, "stolen": (after.stolen - before.stolen) / available_s}


def _cost(used_s: Mapping[str, float], runs: float, shares: Mapping[str, float], pace: float) -> Cost:
    return Cost({role: seconds / runs * 1e6 for role, seconds in used_s.items()}, {**shares, "pace, ms": pace})
