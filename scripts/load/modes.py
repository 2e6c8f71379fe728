"""The three loads: all at once (bulk), at a rate whatever the service does (rate), as fast as runs end (closed)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from .bulk import run_bulk
from .chain import NAME
from .client import Client, RefusedError
from .connection import LostError
from .tally import Tally
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


async def run_closed(client: Client, plan: Plan, tally: Tally) -> None:
    """`concurrency` users, each of which starts a run as soon as its last one has ended."""
    await closed_loop(client, plan, tally, watch(plan.watch, client))


async def closed_loop(client: Client, plan: Plan, tally: Tally, seen: Watch) -> None:
    """The same, whichever way ends are seen."""
    async with asyncio.TaskGroup() as group:
        for _ in range(plan.concurrency):
            group.create_task(_user(client, plan, tally, seen))


async def _user(client: Client, plan: Plan, tally: Tally, seen: Watch) -> None:
    while _more(plan, tally):
        await _one(client, tally, seen, tally.now())


async def run_rate(client: Client, plan: Plan, tally: Tally) -> None:
    """A run every 1/rate s. Its latency counts from when it was to start: a service that stalls does not slow the
    clock."""
    seen = watch(plan.watch, client)
    gate = asyncio.Semaphore(OPEN_MAX)
    async with asyncio.TaskGroup() as group:
        while _more(plan, tally):
            due = tally.begin + tally.begun / plan.rate
            await asyncio.sleep(max(0.0, due - tally.now()))
            await gate.acquire()
            group.create_task(_one(client, tally, seen, due)).add_done_callback(lambda _: gate.release())
            await asyncio.sleep(0)


async def run_all_at_once(client: Client, plan: Plan, tally: Tally) -> None:
    """All of them in a few requests."""
    try:
        await run_bulk(client, tally, plan.runs or 0, plan.duration_s)
    except* TROUBLE as group:
        tally.fail(group.exceptions[0])


MODES: Mapping[str, Callable[[Client, Plan, Tally], Awaitable[None]]] = {
    "bulk": run_all_at_once,
    "rate": run_rate,
    "closed": run_closed,
}


def _more(plan: Plan, tally: Tally) -> bool:
    """Whether another run may begin."""
    in_time = tally.now() - tally.begin < plan.duration_s
    return in_time and (plan.runs is None or tally.begun < plan.runs)


async def _one(client: Client, tally: Tally, seen: Watch, since: float) -> None:
    number = tally.begun
    tally.begun += 1
    try:
        run_id = await client.start(NAME, b'{"n":%d}' % number)
        tally.accept(since)
        tally.end(await seen(run_id), since)
    except TROUBLE as error:
        tally.fail(error)
        await asyncio.sleep(AFTER_ERROR_S)
