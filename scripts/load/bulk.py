"""Many runs at once: requests of 1,000, several on their way; then look, as seldom as will do, until none is left.

While runs are open, only one of them is asked for at a time: runs end about in the order in which they were started, so
a search between the last that is known to have ended and the newest shows how many have. That all have ended is said by
the service's own lists: none is pending, none is running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from .chain import NAME, inputs
from .client import ENDED, Client, RefusedError
from .connection import LostError
from .counts import Counts

REQUEST_RUNS = 1000
REQUESTS_AT_ONCE = 4
LOOK_S = 0.1
PROBES_MAX = 6
LISTED_MAX = 10_000
CLOCKS_APART = timedelta(seconds=5)  # ours and the service's


async def run_bulk(client: Client, counts: Counts, runs: int, duration_s: float) -> None:
    """Start `runs` runs and return when all of them have ended."""
    since = (datetime.now(UTC) - CLOCKS_APART).isoformat().replace("+00:00", "Z")
    counts.begin = counts.now()
    run_ids = await start_all(client, counts, runs, duration_s)
    await _until_ended(client, counts, run_ids, since)


async def start_all(client: Client, counts: Counts, runs: int, duration_s: float, workflow: str = NAME) -> list[str]:
    """Start the runs, REQUESTS_AT_ONCE requests at a time; ids about in the order in which they were accepted."""
    begins = iter(range(0, runs, REQUEST_RUNS))
    run_ids: list[str] = []

    async def sender() -> None:
        for begin in begins:
            if counts.now() - counts.begin > duration_s:
                return
            run_ids.extend(await _request(client, counts, workflow, inputs(min(REQUEST_RUNS, runs - begin), begin)))

    async with asyncio.TaskGroup() as group:
        for _ in range(REQUESTS_AT_ONCE):
            group.create_task(sender())
    return run_ids


async def _request(client: Client, counts: Counts, workflow: str, values: Sequence[bytes]) -> list[str]:
    since = counts.now()
    counts.begun += len(values)
    try:
        run_ids = await client.start_all(workflow, values)
    except (LostError, RefusedError) as error:
        counts.fail(error)
        return []
    counts.accept(since, len(run_ids))
    return run_ids


async def _until_ended(client: Client, counts: Counts, run_ids: Sequence[str], since: str) -> None:
    ended = 0
    while run_ids and (found := await _ended_about(client, run_ids, ended)) < len(run_ids):
        counts.end_many("completed", found - ended)
        ended = found
        await asyncio.sleep(LOOK_S)
    while await _open(client, since):  # noqa: ASYNC110 - the service is asked, nothing here happens
        await asyncio.sleep(LOOK_S)
    counts.end_many("completed", len(run_ids) - ended)
    await _correct(client, counts, since)


async def _ended_about(client: Client, run_ids: Sequence[str], low: int) -> int:
    """How many have ended, to within a sixty-fourth of those that are open; all of them only if the newest has."""
    if await _has_ended(client, run_ids[-1]):
        return len(run_ids)
    high = len(run_ids)
    for _ in range(PROBES_MAX):
        middle = (low + high) // 2
        if middle in (low, high):
            break
        low, high = (middle, high) if await _has_ended(client, run_ids[middle - 1]) else (low, middle)
    return low


async def _has_ended(client: Client, run_id: str) -> bool:
    return await client.status(run_id) in ENDED


async def _open(client: Client, since: str) -> bool:
    """Whether the service lists any run that has not ended. Its index may be too far behind to answer: then there may
    be."""
    try:
        return any([await client.listed(NAME, status, since, 1) for status in ("pending", "running")])
    except RefusedError as error:
        if str(error).startswith("503"):
            return True
        raise


async def _correct(client: Client, counts: Counts, since: str) -> None:
    """What was counted as completed and is listed as failed or cancelled."""
    for status in ("failed", "cancelled"):
        found = len(await client.listed(NAME, status, since, LISTED_MAX))
        if found:
            counts.ended["completed"] -= found
            counts.ended[status] += found
