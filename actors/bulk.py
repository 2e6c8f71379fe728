"""The verbs of the control plane on many runs: which of them match, and what is done with each.

The run index says which runs match; the log decides what became of each. So a run that has ended, or was resumed, between the
two is named among those that were skipped, and a batch never fails because of one run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from msgspec import Struct

from penstock.actors import control
from penstock.actors.loading import load, load_many
from penstock.actors.outputs import input_of
from penstock.actors.run_index import CATCH_UP_S_MAX, RunIndex
from penstock.broker.buckets import Entry
from penstock.broker.store import Store
from penstock.config.background import all_of
from penstock.config.crash_points import reached
from penstock.config.limits import BATCH_BYTES_MAX, BULK_RUNS_MAX, MATCHING_RUNS_MAX
from penstock.engine.definitions import WorkflowDef
from penstock.engine.errors import Conflict, Invalid, NotFound, Unavailable
from penstock.engine.events import WorkflowCancelled, WorkflowStarted
from penstock.engine.schema import Schema
from penstock.engine.state import Run, RunStatus

CHUNK = 50  # runs that are in memory at a time: each may have several MiB
AT_ONCE = 16


class Wanted(Struct, frozen=True):
    """Which runs: of a workflow, in one of these statuses, created within these bounds (RFC 3339, they belong to the range)."""

    workflow: str
    statuses: frozenset[str]
    after: str | None = None
    before: str | None = None


class Skipped(Struct, frozen=True):
    run_id: str
    reason: str


class Cancelled(Struct, frozen=True):
    """All matching runs are in one of the two lists."""

    cancelled: list[str]
    skipped: list[Skipped]


class Retry(Struct, frozen=True, omit_defaults=True):
    """`new_run_id` is there when a new run was started."""

    original_run_id: str
    new_run_id: str | None = None


class Retried(Struct, frozen=True):
    """All matching runs are in one of the two lists, those that were created first come about first."""

    retried: list[Retry]
    skipped: list[Skipped]


class Latest(Struct, frozen=True):
    """The definition that new runs get; `schema` is that of its input, if it declares one."""

    definition: WorkflowDef
    digest: str
    schema: Schema | None


async def matching(store: Store, index: RunIndex, wanted: Wanted) -> list[str]:
    """The ids of the runs that match now, newest first. Raises Invalid when they are more than 1,000, or for a bad bound;
    Unavailable."""
    await _up_to_date(store, index)
    page = index.query(wanted.workflow, wanted.statuses, wanted.after, wanted.before, MATCHING_RUNS_MAX)
    if page.next is not None:
        raise Invalid(f"more than {MATCHING_RUNS_MAX} runs match, {MATCHING_RUNS_MAX} is the most: narrow after and before")
    return page.run_ids


async def cancel(store: Store, index: RunIndex, run_ids: Sequence[str]) -> Cancelled:
    """Cancel these runs, at most 1,000, in one batch, whatever has become of them meanwhile. Raises Unavailable (outcome unknown)."""
    if not run_ids:
        return Cancelled([], [])
    at = control.now()
    await store.history.cancel_all([WorkflowCancelled(run_id=run_id, timestamp=at) for run_id in run_ids])
    reached("runs.cancelled")
    await _up_to_date(store, index)
    statuses = index.statuses(run_ids)
    done = [run_id for run_id in run_ids if statuses.get(run_id) == RunStatus.CANCELLED]
    others = [run_id for run_id in run_ids if statuses.get(run_id) != RunStatus.CANCELLED]
    return Cancelled(done, [_skipped(run_id, statuses.get(run_id)) for run_id in others])


async def rerun(store: Store, run_ids: Sequence[str], latest: Latest, *, dry_run: bool) -> Retried:
    """Start a new run with the input of each of these (newest first) that has failed; with `dry_run`, only say for which.

    They start in batches of bounded size. Raises Unavailable when nobody knows whether any has started; once some have, the
    others are told as skipped.
    """
    done = Retried([], [])
    for chunk in _chunks(run_ids[::-1]):
        try:
            await _rerun(store, chunk, latest, done, dry_run=dry_run)
        except Unavailable as error:
            _give_up(done, chunk, error)
    return done


async def replay(store: Store, run_ids: Sequence[str], *, dry_run: bool) -> Retried:
    """Have each of these runs (newest first) that has failed go on at what failed; with `dry_run`, only say which.

    Raises Unavailable as `rerun`.
    """
    done = Retried([], [])
    for chunk in _chunks(run_ids[::-1]):
        try:
            await _replay(store, chunk, done, dry_run=dry_run)
        except Unavailable as error:
            _give_up(done, chunk, error)
    return done


async def _rerun(store: Store, run_ids: Sequence[str], latest: Latest, done: Retried, *, dry_run: bool) -> None:
    runs = {run.run_id: run for run in await load_many(store, run_ids)}
    events: dict[str, WorkflowStarted] = {}
    for run_id in run_ids:
        again = await _again(store, runs.get(run_id), latest)
        if isinstance(again, WorkflowStarted):
            events[run_id] = again
        else:
            done.skipped.append(Skipped(run_id, again))
    if dry_run:
        done.retried.extend(map(Retry, events))
        return
    for batch in _batches(events):
        await store.history.append_all([events[run_id] for run_id in batch])
        reached("runs.rerun")
        done.retried.extend(Retry(run_id, events[run_id].run_id) for run_id in batch)


async def _replay(store: Store, run_ids: Sequence[str], done: Retried, *, dry_run: bool) -> None:
    snapshots = await store.runs.get_many(run_ids)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(run_id: str) -> Unavailable | None:
        async with gate:
            try:
                await _replay_one(store, run_id, snapshots.get(run_id), dry_run=dry_run)
                done.retried.append(Retry(run_id))
            except (Conflict, NotFound) as error:
                done.skipped.append(Skipped(run_id, str(error)))
            except Unavailable as error:  # the others shall be told all the same
                return error
        return None

    for failed in filter(None, await all_of(map(one, run_ids))):
        raise failed


async def _replay_one(store: Store, run_id: str, snapshot: Entry | None, *, dry_run: bool) -> None:
    if dry_run:
        control.resumable(run_id, await load(store, run_id, snapshot))
    else:
        await control.replay(store, run_id, snapshot)


def _give_up(done: Retried, run_ids: Sequence[str], error: Unavailable) -> None:
    """What has been done is told, and of these runs, as far as they are not told yet, that nobody knows."""
    if not done.retried:
        raise error
    told = {retry.original_run_id for retry in done.retried} | {skipped.run_id for skipped in done.skipped}
    done.skipped.extend(Skipped(run_id, f"whether it was retried is unknown: {error}") for run_id in run_ids if run_id not in told)


def _batches(events: dict[str, WorkflowStarted]) -> Iterator[list[str]]:
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


async def _again(store: Store, run: Run | None, latest: Latest) -> WorkflowStarted | str:
    """The start of the run's repetition, or what keeps it from being started again."""
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
    return control.started(control.new_run_id(), latest.definition, latest.digest, value, control.now(), rerun_of=run.run_id)


def _skipped(run_id: str, status: str | None) -> Skipped:
    return Skipped(run_id, "it is not there any more" if status is None else f"it is {status}")


def _chunks(run_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(run_ids), CHUNK):
        yield run_ids[at : at + CHUNK]


async def _up_to_date(store: Store, index: RunIndex) -> None:
    await index.caught_up(await store.history.last_seq(), CATCH_UP_S_MAX)
