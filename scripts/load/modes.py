"""The three loads: all at once (bulk), at a rate whatever the service does (rate), as fast as runs end (closed)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from .bulk import run_bulk
from .chain import NAME
from .client import Client, RefusedError
from .connection import LostError
from .counts import Counts
from .watching import Watch, watch

OPEN_MAX = 5000
AFTER_ERROR_S = 0.05
TROUBLE = (LostError, RefusedError)


class Plan(Struct, frozen=True, kw_only=True):
    """What is asked for. No run is started after `duration_s`; `runs` None: as many as start until then."""

    mode: str
    runs: int | None
    rate: float
    concurrency: int
    duration_s: float
    watch: str = "stream"


async def run_closed(client: Client, plan: Plan, counts: Counts) -> None:
    """`concurrency` users, each of which starts a run as soon as its last one has ended."""
    await closed_loop(client, plan, counts, watch(plan.watch, client))


async def closed_loop(client: Client, plan: Plan, counts: Counts, seen: Watch) -> None:
    """The same, whichever way ends are seen."""
    async with asyncio.TaskGroup() as group:
        for _ in range(plan.concurrency):
            group.create_task(_user(client, plan, counts, seen))


async def _user(client: Client, plan: Plan, counts: Counts, seen: Watch) -> None:
    while _more(plan, counts):
        await _one(client, counts, seen, counts.now())


async def run_rate(client: Client, plan: Plan, counts: Counts) -> None:
    """A run every 1/rate s. Its latency counts from when it was to start: a service that stalls does not slow the
    clock."""
    seen = watch(plan.watch, client)
    gate = asyncio.Semaphore(OPEN_MAX)
    async with asyncio.TaskGroup() as group:
        while _more(plan, counts):
            due = counts.begin + counts.begun / plan.rate
            await asyncio.sleep(max(0.0, due - counts.now()))
            await gate.acquire()
            group.create_task(_one(client, counts, seen, due)).add_done_callback(lambda _: gate.release())
            await asyncio.sleep(0)


async def run_all_at_once(client: Client, plan: Plan, counts: Counts) -> None:
    """All of them in a few requests."""
    try:
        await run_bulk(client, counts, plan.runs or 0, plan.duration_s)
    except* TROUBLE as group:
        counts.fail(group.exceptions[0])


MODES: Mapping[str, Callable[[Client, Plan, Counts], Awaitable[None]]] = {
    "bulk": run_all_at_once,
    "rate": run_rate,
    "closed": run_closed,
}


def _more(plan: Plan, counts: Counts) -> bool:
    """Whether another run may begin."""
    in_time = counts.now() - counts.begin < plan.duration_s
    return in_time and (plan.runs is None or counts.begun < plan.runs)


async def _one(client: Client, counts: Counts, seen: Watch, since: float) -> None:
    number = counts.begun
    counts.begun += 1
    try:
        run_id = await client.start(NAME, b'{"n":%d}' % number)
        counts.accept(since)
        counts.end(await seen(run_id), since)
    except TROUBLE as error:
        counts.fail(error)
        await asyncio.sleep(AFTER_ERROR_S)
