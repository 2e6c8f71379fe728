"""The workload of the console, in a real browser on the same machine: the first page, events until they are seen, long
runs, lists with filters, and what fifty consoles cost a bulk. Sizes are in environment.py, targets in targets.py."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING

import httpx2
import msgspec

from . import console_browser
from .chain import HOLD, NAME, TASK, definition
from .client import address
from .connection import Pool
from .console_browser import Asked
from .environment import Environment, Setup, environment
from .figures import percentile
from .samples import Sample, Workload

if TYPE_CHECKING:
    from playwright.async_api import Browser

EVENTS, MAP, LONG_CHAIN, WATCHED = "console-events", "console-map", "console-chain", "console-watched"
MAPS = 3  # of the run with many events
WATCHED_STEPS, WATCHED_STEP_S = 30, 0.15
TALL = 2_000  # so that all steps are seen at once
CONSOLES = 50
STAY_MS = 9_000
TIMES = 20
FILTERS = ("", "?status=completed", f"?workflow={NAME}", f"?workflow={NAME}&status=failed", "?q=team", "?held_up=true")
STATES = {"step.started": "running", "step.completed": "completed"}


async def console(setup: Setup) -> Sample:
    """All of it on one service, the large lists last."""
    async with environment(setup, alone=True) as on, console_browser.browser() as browser:
        first = [await console_browser.first_page(browser, on.service.url) for _ in range(setup.sizes.pages)]
        seen_ms = await _seen_ms(on, browser)
        rows = {
            "console-bytes": median(one.kb for one in first),
            "console-requests": median(one.requests for one in first),
            "console-paint": median(one.paint_ms for one in first),
            "console-seen": percentile(seen_ms, 0.5),
            "console-seen-p99": percentile(seen_ms, 0.99),
        }
        for name, run_id in (await _long_runs(on, setup)).items():
            opened = await console_browser.run_page(browser, on.service.url, run_id)
            rows |= {name: opened.interactive_s, f"{name}-whole": opened.whole_s}
            rows |= {f"{name}-frames": opened.frames, f"{name}-heap": opened.heap_mb}
        rows["console-fifty"] = await _fifty(on, browser, setup)
        rows["console-list"] = await _slowest_list_ms(on, browser)
    return Sample(rows)


async def _seen_ms(on: Environment, browser: Browser) -> list[float]:
    """From the broker's time of each event to its change of the page."""
    await on.client.register(definition(WATCHED_STEPS, WATCHED, HOLD))
    run_id = await on.client.start(WATCHED, b"%f" % WATCHED_STEP_S)
    async with console_browser.page(browser, TALL) as page:
        await console_browser.watch(page, on.service.url, run_id)
        begin = time.time() * 1000
        seen = await console_browser.seen(page, f"s{WATCHED_STEPS}")
    stored = await _stored_ms(on, run_id)
    return sorted(seen[name] - at for name, at in stored.items() if at > begin and name in seen)


async def _stored_ms(on: Environment, run_id: str) -> Mapping[str, float]:
    """By step and state, when the broker stored the event."""
    async with httpx2.AsyncClient(base_url=on.service.url, trust_env=False) as http:
        events = (await http.get(f"/runs/{run_id}/events")).json()
    return {
        f"{event['step_id']} {STATES[event['type']]}": datetime.fromisoformat(event["timestamp"]).timestamp() * 1000
        for event in events
        if event["type"] in STATES
    }


async def _long_runs(on: Environment, setup: Setup) -> Mapping[str, str]:
    """Runs with many events, a large map and many steps, by row, once they have ended."""
    elements = setup.sizes.elements
    each = {"type": "map", "task": TASK, "config": {"items": "${{ input }}", "max_items": 10_000}}
    for name, maps in ((EVENTS, MAPS), (MAP, 1)):
        steps = [{"id": f"m{number}", **each} for number in range(maps)]
        await on.client.register(msgspec.json.encode({"name": name, "steps": steps}))
    await on.client.register(definition(setup.sizes.chained, LONG_CHAIN))
    values = {EVENTS: list(range(elements * 5 // 6)), MAP: list(range(elements)), LONG_CHAIN: [1]}
    run_ids = {name: await on.client.start(name, msgspec.json.encode(value)) for name, value in values.items()}
    for run_id in run_ids.values():
        if (status := await on.client.status_at_end(run_id)) != "completed":
            raise RuntimeError(f"run {run_id} is {status}")
    return run_ids


async def _fifty(on: Environment, browser: Browser, setup: Setup) -> float:
    """Of a bulk's speed, how much is left in % while fifty consoles show the list of runs: by turns, so that a machine
    that gets slower hits both."""
    requests = await console_browser.asked(browser, on.service.url, "", STAY_MS)
    alone, beside = 0.0, 0.0
    for _ in range(setup.sizes.pages):
        alone += await _bulk_s(on, setup.sizes.bulk)
        async with _consoles(on, requests):
            beside += await _bulk_s(on, setup.sizes.bulk)
    return alone / beside * 100


async def _bulk_s(on: Environment, runs: int) -> float:
    run_ids, begin = await on.drain(runs)
    return await on.log.all_completed_at(run_ids) - begin


@asynccontextmanager
async def _consoles(on: Environment, requests: Sequence[Asked]) -> AsyncIterator[None]:
    """So many consoles, as the service sees them: each asks again for what a real page has asked for, as often and in
    the same way."""
    pool = Pool(*address(on.service.url))
    again = {one.path: one for one in requests}  # the first request of a page may differ from the later ones
    begun = [
        asyncio.create_task(_ask(pool, again[path], STAY_MS / 1000 / count))
        for path, count in Counter(one.path for one in requests).items()
        for _ in range(CONSOLES)
        if count > 1  # what a page asks for once, it does not ask for again
    ]
    yield
    for task in begun:
        task.cancel()
    await asyncio.gather(*begun, return_exceptions=True)
    pool.close()


async def _ask(pool: Pool, asked: Asked, every_s: float) -> None:
    headers = f"Cache-Control: {asked.cache}\r\n".encode() if asked.cache else b""
    await asyncio.sleep(random.uniform(0, every_s))
    while True:
        await pool.request("GET", asked.path, headers=headers)
        await asyncio.sleep(every_s)


async def _slowest_list_ms(on: Environment, browser: Browser) -> float:
    """Of all requests of the list with each filter, the median of the slowest."""
    pool = Pool(*address(on.service.url))
    paths = {one.path for query in FILTERS for one in await console_browser.asked(browser, on.service.url, query, 500)}
    found = [median([await _answered_ms(pool, path) for _ in range(TIMES)]) for path in paths]
    pool.close()
    return max(found)


async def _answered_ms(pool: Pool, path: str) -> float:
    begin = time.perf_counter()
    await pool.request("GET", path)
    return (time.perf_counter() - begin) * 1000


CONSOLE_WORKLOADS: Mapping[str, Workload] = {"console": Workload(console, once=True)}
