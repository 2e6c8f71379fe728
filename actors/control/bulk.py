"""Operations on many runs: which runs match, and what is done with each.

The run index finds the runs that match; the log decides what is done with each. So a run that has ended, or was
resumed, in between is reported as skipped, and a batch never fails because of one run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from msgspec import Struct

from penstock.actors.control import run_operations
from penstock.actors.index.run_index import RunIndex
from penstock.actors.index.selection import Selection
from penstock.actors.runs.loading import load, load_many
from penstock.broker.nats.buckets import Entry
from penstock.broker.store import Store
from penstock.config.limits import MATCHING_RUNS_MAX
from penstock.config.process.background import all_of
from penstock.config.process.crash_points import reached
from penstock.engine.errors import Conflict, Invalid, NotFound, Unavailable
from penstock.engine.run.event_payloads import Cancellation
from penstock.engine.run.events import WorkflowCancelled
from penstock.engine.run.state import RunStatus

CHUNK = 50  # runs that are in memory at a time: each may have several MiB
AT_ONCE = 16


class Wanted(Struct, frozen=True):
    """The filter: a workflow, statuses, bounds of the creation time (RFC 3339, included in the range), labels
    (`key:value`) that a run must have, and whether it must be paused, or must not; the rest as in Selection.

    With `limit`, the newest so many of the matching runs beyond `cursor`.
    """

    workflow: str | None
    statuses: frozenset[str]
    after: str | None = None
    before: str | None = None
    limit: int | None = None
    cursor: str | None = None
    labels: tuple[str, ...] = ()
    paused: bool | None = None
    trigger: str | None = None
    parent: str | None = None
    text: str | None = None
    run_ids: tuple[str, ...] | None = None
    pattern: str | None = None


class MatchingRuns(Struct, frozen=True):
    """Newest first. `next` is the cursor of the next page, None at the end; `remaining` is the number of runs on later
    pages."""

    run_ids: list[str]
    next: str | None = None
    remaining: int = 0


class Skipped(Struct, frozen=True):
    run_id: str
    reason: str


class CancelledRuns(Struct, frozen=True):
    """All matching runs are in one of the two lists."""

    cancelled: list[str]
    skipped: list[Skipped]


class RetryResult(Struct, frozen=True, omit_defaults=True):
    """`new_run_id` is set when a new run was started."""

    original_run_id: str
    new_run_id: str | None = None


class RetriedRuns(Struct, frozen=True):
    """All matching runs are in one of the two lists, oldest first."""

    retried: list[RetryResult]
    skipped: list[Skipped]


async def matching(index: RunIndex, wanted: Wanted) -> MatchingRuns:
    """The runs that match in the index. Raises as `selected`."""
    selection = Selection(
        workflow=wanted.workflow,
        statuses=wanted.statuses,
        after=wanted.after,
        before=wanted.before,
        labels=wanted.labels,
        imported=False,
        paused=wanted.paused,
        trigger=wanted.trigger,
        parent=wanted.parent,
        text=wanted.text,
        run_ids=wanted.run_ids,
        pattern=wanted.pattern,
    )
    return await selected(index, selection, wanted.limit, wanted.cursor)


async def selected(index: RunIndex, selection: Selection, limit: int | None, cursor: str | None) -> MatchingRuns:
    """The runs of the selection in the index; with `limit` the newest so many beyond `cursor`. Raises Invalid when they
    are more than 1,000 and there is no limit, or for a bad bound or cursor; Unavailable without an index."""
    page = await index.find(selection, limit or MATCHING_RUNS_MAX, cursor)
    if page.next is None:
        return MatchingRuns(page.run_ids)
    if limit is None:
        most = f"more than {MATCHING_RUNS_MAX} runs match, {MATCHING_RUNS_MAX} is the most"
        raise Invalid(f"{most}: narrow after and before, or take them in parts, with limit and cursor")
    return MatchingRuns(page.run_ids, page.next, await index.count_matching(selection, page.next))


async def cancel(store: Store, run_ids: Sequence[str], *, compensate: bool = False) -> CancelledRuns:
    """Cancel these runs, at most 1,000, in one batch; with `compensate` they undo their steps first. Those that have
    ended meanwhile are skipped. Raises Unavailable (outcome unknown)."""
    if not run_ids:
        return CancelledRuns([], [])
    at = run_operations.now()
    wanted = Cancellation(compensate=compensate)
    await store.history.cancel_all(
        [WorkflowCancelled(run_id=run_id, timestamp=at, payload=wanted) for run_id in run_ids]
    )
    reached("runs.cancelled")
    found: dict[str, tuple[RunStatus, bool]] = {}
    for chunk in chunks(run_ids):
        runs = await load_many(store, chunk)
        found.update((run.run_id, (run.status, run_operations.is_cancelled(run))) for run in runs)
    done = [run_id for run_id in run_ids if run_id in found and found[run_id][1]]
    others = [run_id for run_id in run_ids if run_id not in found or not found[run_id][1]]
    return CancelledRuns(done, [_skipped(run_id, found[run_id][0] if run_id in found else None) for run_id in others])


async def replay(store: Store, run_ids: Sequence[str], *, dry_run: bool) -> RetriedRuns:
    """Resume each of these runs (newest first) that has failed; with `dry_run`, only report which would be.

    Raises Unavailable when no run is known to be resumed; when some are, the others are reported as skipped.
    """
    done = RetriedRuns([], [])
    for chunk in chunks(run_ids[::-1]):
        try:
            await _replay(store, chunk, done, dry_run=dry_run)
        except Unavailable as error:
            skip_rest(done, chunk, error)
    return done


async def _replay(store: Store, run_ids: Sequence[str], done: RetriedRuns, *, dry_run: bool) -> None:
    snapshots = await store.runs.get_many(run_ids)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(run_id: str) -> Unavailable | None:
        async with gate:
            try:
                await _replay_one(store, run_id, snapshots.get(run_id), dry_run=dry_run)
                done.retried.append(RetryResult(run_id))
            except (Conflict, NotFound) as error:
                done.skipped.append(Skipped(run_id, str(error)))
            except Unavailable as error:  # raised when the others are done
                return error
        return None

    for failed in filter(None, await all_of(map(one, run_ids))):
        raise failed


async def _replay_one(store: Store, run_id: str, snapshot: Entry | None, *, dry_run: bool) -> None:
    if dry_run:
        run_operations.resumable(run_id, await load(store, run_id, snapshot))
    else:
        await run_operations.replay(store, run_id, snapshot)


def skip_rest(done: RetriedRuns, run_ids: Sequence[str], error: Unavailable) -> None:
    """Report those of these runs that are not in `done` yet as skipped. Raises `error` if none was retried."""
    if not done.retried:
        raise error
    known = {retry.original_run_id for retry in done.retried} | {skipped.run_id for skipped in done.skipped}
    done.skipped.extend(
        Skipped(run_id, f"whether it was retried is unknown: {error}") for run_id in run_ids if run_id not in known
    )


def _skipped(run_id: str, status: str | None) -> Skipped:
    return Skipped(run_id, "it is not there any more" if status is None else f"it is {status}")


def chunks(run_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(run_ids), CHUNK):
        yield run_ids[at : at + CHUNK]
