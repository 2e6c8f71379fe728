"""Reruns: new runs with the input of failed ones. With a key, a call can be repeated safely.

The plan of a key is stored before any run is started, and the new runs' ids are derived from the key and the original's
id. So a repeated call starts what an interrupted call has not started, and reports all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

import msgspec
from msgspec import Struct

from penstock.actors.control import run_operations
from penstock.actors.control.bulk import MatchingRuns, RetriedRuns, RetryResult, Skipped, chunks, skip_rest
from penstock.actors.index.run_index import RunIndex
from penstock.actors.runs.loading import load_many
from penstock.actors.runs.outputs import input_of
from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.limits import BATCH_BYTES_MAX, BULK_RUNS_MAX
from penstock.config.process.crash_points import reached
from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.definition.schema import Schema
from penstock.engine.errors import Conflict, NotFound, Unavailable
from penstock.engine.run.events import WorkflowStarted
from penstock.engine.run.state import Run, RunStatus


class Latest(Struct, frozen=True):
    """The definition of new runs; `schema` is that of its input, if it declares one."""

    definition: WorkflowDef
    digest: str
    schema: Schema | None


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
    entry = await store.rerun_keys.get(names.rerun_key(workflow, key))
    return None if entry is None else msgspec.json.decode(entry.value, type=Plan)


async def keep(store: Store, workflow: str, key: str, wanted: Plan) -> Plan:
    """Store the plan under this key. Returns the stored plan, which may be another request's. Raises Unavailable."""
    try:
        await store.rerun_keys.put(names.rerun_key(workflow, key), msgspec.json.encode(wanted), expect=0)
    except Conflict:
        return await planned(store, workflow, key) or wanted
    reached("rerun.planned")
    return wanted


async def rerun(store: Store, wanted: Plan, latest: Latest, *, dry_run: bool, key: str | None = None) -> RetriedRuns:
    """Start a new run with the input of each of these that has failed; with `dry_run`, only report which would be.

    They start in batches of bounded size. With a key, runs started by an earlier call are reported as started. Raises
    Unavailable when no run is known to have started; when some have, the others are reported as skipped.
    """
    done = RetriedRuns([], list(wanted.skipped))
    for chunk in chunks(wanted.run_ids):
        try:
            await _rerun(store, chunk, wanted.once, latest, done, key, dry_run=dry_run)
        except Unavailable as error:
            skip_rest(done, chunk, error)
    return done


async def _rerun(
    store: Store,
    run_ids: Sequence[str],
    once: bool,
    latest: Latest,
    done: RetriedRuns,
    key: str | None,
    *,
    dry_run: bool,
) -> None:
    ids = {run_id: _new_id(run_id, once, latest.definition.name, key) for run_id in run_ids}
    begun = await store.history.begun(list(ids.values())) if once or key is not None else set[str]()
    runs = {
        run.run_id: run for run in await load_many(store, [run_id for run_id in run_ids if ids[run_id] not in begun])
    }
    events: dict[str, WorkflowStarted] = {}
    for run_id in run_ids:
        if ids[run_id] in begun:
            _report_begun(done, run_id, ids[run_id], key)
            continue
        again = await _again(store, runs.get(run_id), ids[run_id], latest)
        if isinstance(again, WorkflowStarted):
            events[run_id] = again
        else:
            done.skipped.append(Skipped(run_id, again))
    if dry_run:
        done.retried.extend(map(RetryResult, events))
        return
    for batch in _batches(events):
        try:
            await store.history.append_first([events[run_id] for run_id in batch])
        except Conflict:  # another call has just started some of them
            await _rerun(store, batch, once, latest, done, key, dry_run=False)
            continue
        reached("runs.rerun")
        done.retried.extend(RetryResult(run_id, ids[run_id]) for run_id in batch)


def _new_id(run_id: str, once: bool, workflow: str, key: str | None) -> str:
    """The new run's id: derived from the original's id, or from the key, where it must not start twice."""
    if once:
        return sha256(f"{run_id}\nonce".encode()).hexdigest()[:32]
    return run_operations.new_run_id() if key is None else run_operations.keyed_run_id(workflow, f"{key}\n{run_id}")


def _report_begun(done: RetriedRuns, run_id: str, new_id: str, key: str | None) -> None:
    if key is None:
        done.skipped.append(_rerun_already(run_id, new_id))
    else:
        done.retried.append(RetryResult(run_id, new_id))


def _rerun_already(run_id: str, new_id: str) -> Skipped:
    return Skipped(run_id, f"already rerun as {new_id}")


def _batches(events: Mapping[str, WorkflowStarted]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for run_id, event in events.items():
        more = memoryview(event.payload.input).nbytes
        if batch and (len(batch) == BULK_RUNS_MAX or size + more > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(run_id)
        size += more
    if batch:
        yield batch


async def _again(store: Store, run: Run | None, new_id: str, latest: Latest) -> WorkflowStarted | str:
    """The event that starts the new run, or the reason why it is not started."""
    if run is None:
        return "it is not there any more"
    if run.status is not RunStatus.FAILED:
        return f"it is {run.status}"
    try:
        value = await input_of(store, run)
    except NotFound as error:
        return str(error)
    problems = latest.schema.check(bytes(value), "input") if latest.schema else []
    if problems:
        return "; ".join(problems)
    return run_operations.started(
        new_id, latest.definition, latest.digest, value, run_operations.now(), rerun_of=run.run_id
    )
