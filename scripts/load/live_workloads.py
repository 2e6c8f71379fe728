"""The workloads of what steps say: log lines beside a bulk, the first line and a chunk until a follower has them, and a
follower that comes late. Sizes are in environment.py, targets in targets.py."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import msgspec

from penstock.broker.live import lines
from penstock.worker import Context

from .environment import Environment, Setup, environment
from .figures import percentile
from .samples import Sample, Workload

SAY = "loadtest.say"
SAYING, SHOWING = "loadtest-saying", "loadtest-showing"
SAYERS, SAYER_LINES_PER_S = 8, 3_000  # together more than what shall be reached
BATCHES_PER_S = 50
SAID_S = 0.02  # between two chunks whose ways are timed
TEXT = "charged the card of the customer, and waits for the bank"
AT = re.compile(rb"at (\d+\.\d+)")
END = b"event: end"


async def say(value: Any, ctx: Context) -> None:
    """Log so many lines at so many a second, then stream so many chunks, `gap_s` between two; what is timed has the
    time in it."""
    begin = time.perf_counter()
    per_batch = max(1, value.get("per_s", BATCHES_PER_S) // BATCHES_PER_S)
    count = value.get("lines", 0)
    for first in range(0, count, per_batch):
        for _ in range(min(per_batch, count - first)):
            ctx.log(f"{TEXT} at {time.time():f}")
        await asyncio.sleep(begin + (first + per_batch) / value["per_s"] - time.perf_counter())
    await asyncio.sleep(value.get("wait_s", 0.0))
    for number in range(value.get("timed_lines", 0)):
        ctx.log(f"{number} at {time.time():f}")
        await asyncio.sleep(SAID_S)
    for number in range(value.get("chunks", 0)):
        ctx.stream(f"at {time.time():f}" if "gap_s" in value else number)
        if "gap_s" in value:
            await asyncio.sleep(value["gap_s"])
        elif not number % 1000:
            await asyncio.sleep(0)


async def logs(setup: Setup) -> Sample:
    """A bulk, and beside it steps that log; then the same bulk alone."""
    runs = setup.sizes.bulk
    async with environment(setup) as on:
        await _register(on)
        value = {"lines": setup.sizes.said // SAYERS, "per_s": SAYER_LINES_PER_S}
        with on.measured("logs", setup.sizes.said) as costs:
            begin = time.time()
            run_id = await on.client.start(SAYING, msgspec.json.encode([value] * SAYERS))
            run_ids, bulk_begin = await on.drain(runs)
            bulk_s = await on.log.all_completed_at(run_ids) - bulk_begin
            await on.client.ended(run_id)
        stored, last = await _stored(on, run_id)
    rows = {"logs": stored / (last - begin), "logs-kept": stored / setup.sizes.said * 100, "logs-bulk": runs / bulk_s}
    return Sample(rows, costs)


async def chunks(setup: Setup) -> Sample:
    """Lines and chunks, one at a time, until a follower over HTTP has them; then one that comes when 100,000 chunks are
    there."""
    async with environment(setup) as on:
        await _register(on)
        first = sorted([await _first_line(on) for _ in range(setup.sizes.followed)])
        value = {"wait_s": 0.5, "chunks": setup.sizes.latency, "gap_s": SAID_S}
        run_id = await on.client.start(SHOWING, msgspec.json.encode(value))
        ways = sorted([way async for way in _ways(on, f"/runs/{run_id}/stream")])
        run_id = await on.client.start(SHOWING, msgspec.json.encode({"chunks": setup.sizes.late}))
        await on.client.ended(run_id)
        with on.measured("stream-late", setup.sizes.late) as costs:
            begin = time.perf_counter()
            found = await _count(on, f"/runs/{run_id}/stream", b"event: chunk")
            late_s = time.perf_counter() - begin
    if found != setup.sizes.late:
        raise RuntimeError(f"a late follower got {found} of {setup.sizes.late} chunks")
    rows = {
        "log-first": percentile(first, 0.5) * 1000,
        "stream-p50": percentile(ways, 0.5) * 1000,
        "stream-p99": percentile(ways, 0.99) * 1000,
        "stream-late": late_s,
    }
    return Sample(rows, costs)


async def _register(on: Environment) -> None:
    each = {"id": "m", "type": "map", "task": SAY}
    for name, step in ((SAYING, each), (SHOWING, {"id": "s", "task": SAY})):
        await on.client.register(msgspec.json.encode({"name": name, "steps": [step]}))


async def _first_line(on: Environment) -> float:
    """How long the first line of a run took to its follower, in s."""
    run_id = await on.client.start(SHOWING, b'{"wait_s":0.3,"timed_lines":1}')
    [way] = [way async for way in _ways(on, f"/runs/{run_id}/logs")]
    return way


async def _ways(on: Environment, path: str) -> AsyncIterator[float]:
    """Of each event that has a time in it, how long ago that was when it came."""
    async for piece in _pieces(on, path):
        now = time.time()
        for found in AT.finditer(piece):
            yield now - float(found[1])


async def _count(on: Environment, path: str, what: bytes) -> int:
    return sum([piece.count(what) async for piece in _pieces(on, path)])


async def _pieces(on: Environment, path: str) -> AsyncIterator[bytes]:
    """The bytes of a live stream until its end, cut between events."""
    async with (
        httpx2.AsyncClient(base_url=on.service.url, trust_env=False, timeout=60) as http,
        http.stream("GET", path, headers={"Accept": "text/event-stream"}) as answer,
    ):
        left = b""
        async for piece in answer.aiter_raw():
            whole, _, left = (left + piece).rpartition(b"\n\n")
            yield whole + b"\n\n"


async def _stored(on: Environment, run_id: str) -> tuple[int, float]:
    """How many lines of the run are stored, those that say what was dropped not counted, and when the last one was."""
    count, last = 0, 0.0
    async for page in on.store.logs.pages(run_id, None, 1):
        for stored in page:
            batch = lines.read(stored.data)
            count += sum(TEXT.encode() in bytes(line) for line in batch.lines) if batch else 0
            last = stored.at
    return count, last


LIVE_WORKLOADS: Mapping[str, Workload] = {"logs": Workload(logs), "chunks": Workload(chunks)}
