"""Reruns of many runs: new runs with the input of ended ones. With a key, a call can be repeated safely.

The plan of a key is stored before any run is started, and the new runs' ids are derived from the key and the original's
id. So a repeated call starts what an interrupted call has not started, and reports all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from penstock.actors.control.bulk import MatchingRuns, RetriedRuns, RetryResult, Skipped, chunks, skip_rest
from penstock.actors.control.rerunning import Definition, RerunWish, new_run
from penstock.actors.index.run_index import RunIndex
from penstock.actors.runs.loading import load_many
from penstock.broker import record_keys
from penstock.broker.run_ids import keyed_run_id, new_run_id
from penstock.broker.store import Store
from penstock.config.limits import BATCH_BYTES_MAX, BULK_RUNS_MAX
from penstock.config.process.background import Work, all_of
from penstock.config.process.crash_points import reached
from penstock.engine.errors import Conflict, Invalid, NotFound, Unavailable
from penstock.engine.run.events import WorkflowStarted
from penstock.engine.run.state import Run, RunStatus

Again: TypeAlias = Callable[[Run, str], Work[WorkflowStarted | str]]
"""The event that starts a run again under this id, or the reason why it is not started. Raises Unavailable."""


class Plan(Struct, frozen=True, omit_defaults=True):
    """What one call does: `run_ids` are started again, oldest first. `wanted` is the filter of the call; `next` and
    `remaining` are as in MatchingRuns."""

    run_ids: list[str]
    skipped: list[Skipped] = []
    once: bool = False
    wanted: str = ""
    next: str | None = None
    remaining: int = 0

    @property
    def total(self) -> int:
        return len(self.run_ids) + len(self.skipped)


def plan(index: RunIndex, found: MatchingRuns, *, once: bool, wanted: str = "") -> Plan:
    """The plan for these runs; with `once`, runs that were already rerun are skipped. Raises Unavailable."""
    reruns = index.reruns(found.run_ids) if once else {}
    oldest_first = found.run_ids[::-1]
    skipped = [_rerun_already(run_id, reruns[run_id]) for run_id in oldest_first if run_id in reruns]
    return Plan(
        [run_id for run_id in oldest_first if run_id not in reruns], skipped, once, wanted, found.next, found.remaining
    )


async def planned(store: Store, workflow: str, key: str) -> Plan | None:
    """The stored plan of this key, if it was used before. Raises Unavailable."""
    entry = await store.rerun_keys.get(record_keys.rerun_key(workflow, key))
    return None if entry is None else msgspec.json.decode(entry.value, type=Plan)


async def keep(store: Store, workflow: str, key: str, wanted: Plan) -> Plan:
    """Store the plan under this key. Returns the stored plan, which may be another request's. Raises Unavailable."""
    try:
        await store.rerun_keys.put(record_keys.rerun_key(workflow, key), msgspec.json.encode(wanted), expect=0)
    except Conflict:
        return await planned(store, workflow, key) or wanted
    reached("rerun.planned")
    return wanted


class _Call(NamedTuple):
    """One call of `rerun`, and what it has done so far."""

    store: Store
    workflow: str
    once: bool
    key: str | None
    again: Again
    dry_run: bool
    done: RetriedRuns

    def new_id(self, run_id: str) -> str:
        """The new run's id: derived from the original's id, or from the key, where it must not start twice."""
        if self.once:
            return sha256(f"{run_id}\nonce".encode()).hexdigest()[:32]
        if self.key is None:
            return new_run_id()
        return keyed_run_id(self.workflow, f"{self.key}\n{run_id}")


async def rerun(
    store: Store, workflow: str, wanted: Plan, again: Again, *, dry_run: bool, key: str | None = None
) -> RetriedRuns:
    """Start a new run for each of these runs of a workflow; with `dry_run`, only report which would be.

    They start in batches of bounded size. With a key, runs started by an earlier call are reported as started. Raises
    Unavailable when no run is known to have started; when some have, the others are reported as skipped.
    """
    call = _Call(store, workflow, wanted.once, key, again, dry_run, RetriedRuns([], list(wanted.skipped)))
    await _rerun(call, wanted.run_ids)
    return call.done


async def _rerun(call: _Call, run_ids: Sequence[str]) -> None:
    """Runs are read a few at a time, and their successors are stored together: what has started takes the CPU that the
    rest of the request needs."""
    batch, size = dict[str, WorkflowStarted](), 0
    for chunk in chunks(run_ids):
        try:
            events = await _events(call, chunk)
        except Unavailable as error:
            skip_rest(call.done, chunk, error)
            continue
        for run_id, event in events.items():
            more = memoryview(event.payload.input).nbytes
            if batch and (len(batch) == BULK_RUNS_MAX or size + more > BATCH_BYTES_MAX):
                await _start(call, batch)
                batch, size = {}, 0
            batch[run_id] = event
            size += more
    if batch:
        await _start(call, batch)


async def _events(call: _Call, run_ids: Sequence[str]) -> Mapping[str, WorkflowStarted]:
    """The events that start these runs again. Those that are not started are reported."""
    store, done = call.store, call.done
    ids = {run_id: call.new_id(run_id) for run_id in run_ids}
    begun = await store.history.begun(list(ids.values())) if call.once or call.key is not None else set[str]()
    loaded = await load_many(store, [run_id for run_id in run_ids if ids[run_id] not in begun])
    found = await all_of(call.again(run, ids[run.run_id]) for run in loaded)
    results = {run.run_id: result for run, result in zip(loaded, found, strict=True)}
    events: dict[str, WorkflowStarted] = {}
    for run_id in run_ids:
        result = results.get(run_id, "it is not there any more")
        if ids[run_id] in begun:
            _report_begun(done, run_id, ids[run_id], call.key)
        elif isinstance(result, WorkflowStarted):
            events[run_id] = result
        else:
            done.skipped.append(Skipped(run_id, result))
    return events


async def _start(call: _Call, batch: Mapping[str, WorkflowStarted]) -> None:
    """Start a batch of runs, all or none."""
    if call.dry_run:
        call.done.retried.extend(map(RetryResult, batch))
        return
    try:
        await call.store.history.append_first(list(batch.values()))
    except Conflict:  # another call has just started some of them
        await _rerun(call, list(batch))
    except Unavailable as error:
        skip_rest(call.done, list(batch), error)
    else:
        reached("runs.rerun")
        call.done.retried.extend(RetryResult(run_id, event.run_id) for run_id, event in batch.items())


def _report_begun(done: RetriedRuns, run_id: str, new_id: str, key: str | None) -> None:
    if key is None:
        done.skipped.append(_rerun_already(run_id, new_id))
    else:
        done.retried.append(RetryResult(run_id, new_id))


def _rerun_already(run_id: str, new_id: str) -> Skipped:
    return Skipped(run_id, f"already rerun as {new_id}")


def with_latest(store: Store, latest: Definition) -> Again:
    """New runs of failed ones, with the latest definition."""

    async def again(run: Run, new_id: str) -> WorkflowStarted | str:
        if run.status is not RunStatus.FAILED:
            return f"it is {run.status}"
        return await _again(store, run, new_id, RerunWish(latest=latest))

    return again


def with_wish(store: Store, wish: RerunWish) -> Again:
    """New runs of ended ones, as the wish says."""

    async def again(run: Run, new_id: str) -> WorkflowStarted | str:
        return await _again(store, run, new_id, wish)

    return again


async def _again(store: Store, run: Run, new_id: str, wish: RerunWish) -> WorkflowStarted | str:
    try:
        return (await new_run(store, run, new_id, wish)).started
    except (Conflict, NotFound, Invalid) as error:
        return str(error)
