"""Workloads of runs that are repeated: many reruns in one request, from the beginning and from a step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import msgspec

from .chain import NAME
from .environment import EVENTS_PER_RUN, STEPS, Environment, Setup, environment
from .samples import Sample, Workload

INDEXED_S_MAX = 30.0
LAST = f"s{STEPS}"
AFRESH, FROM_LAST = EVENTS_PER_RUN, 3 + STEPS - 1  # events of a run, at least


class _Rerun(msgspec.Struct):
    original_run_id: str
    new_run_id: str | None = None


class _Answer(msgspec.Struct):
    rerun: list[_Rerun]
    total: int


async def reruns(setup: Setup) -> Sample:
    """Runs that have completed are started again in one request: afresh, and from their last step."""
    count = setup.sizes.rerun
    async with environment(setup) as on:
        run_ids, _ = await on.drain(count)
        await on.log.completed_at(run_ids)
        afresh, _ = await _rerun(on, count)
        taken, ended = await _rerun(on, count, LAST)
    return Sample({"rerun": afresh, "rerun-from": taken, "rerun-from-end": ended})


RECOVERY_WORKLOADS: Mapping[str, Workload] = {"rerun": Workload(reruns)}


async def _rerun(on: Environment, count: int, from_step: str | None = None) -> tuple[float, float]:
    """Seconds until the answer, and until the log says that all new runs have completed."""
    wish = {"workflow_id": NAME, "status": "completed", "limit": count}
    await _listed(on, count)
    before = await on.log.messages()
    begin, at = time.perf_counter(), time.time()
    answer = await on.client.rerun(msgspec.json.encode(wish if from_step is None else {**wish, "from": from_step}))
    took_s = time.perf_counter() - begin
    found = msgspec.json.decode(answer, type=_Answer)
    new = [one.new_run_id for one in found.rerun if one.new_run_id is not None]
    if len(new) != count:
        raise RuntimeError(f"{len(new)} of {count} runs were started again")
    await on.log.until_quiet(before + count * (AFRESH if from_step is None else FROM_LAST))
    return took_s, await on.log.completed_at(new) - at


async def _listed(on: Environment, count: int) -> None:
    """Return once the run index has so many runs that have completed."""
    wish = msgspec.json.encode({"workflow_id": NAME, "status": "completed", "limit": count, "dry_run": True})
    async with asyncio.timeout(INDEXED_S_MAX):
        while msgspec.json.decode(await on.client.rerun(wish), type=_Answer).total < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
