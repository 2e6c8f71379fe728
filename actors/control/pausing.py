"""Pausing runs, and letting them go on: one of them, or many at once.

Each appends to the runs' histories and changes nothing else: the shards that own the runs do the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from penstock.actors.control.bulk import Skipped, chunks
from penstock.actors.control.run_operations import get, now
from penstock.actors.runs.loading import load_many
from penstock.broker.store import Store
from penstock.config.process.crash_points import reached
from penstock.engine.errors import Conflict
from penstock.engine.run.event_payloads import PauseScope
from penstock.engine.run.events import WorkflowPaused, WorkflowUnpaused
from penstock.engine.run.state import Run

FORMAT = 2  # of both events: versions that read format 1 only would take them for malformed
GONE = "it is not there any more"

_Order: TypeAlias = type[WorkflowPaused] | type[WorkflowUnpaused]


class OrderedRuns(Struct, frozen=True):
    """All matching runs are in one of the two lists."""

    done: list[str]
    skipped: list[Skipped]


async def pause(store: Store, run_id: str, *, children: bool = False) -> Run:
    """Pause the run, unless it is paused; with `children` the runs that its steps wait for, too. Returns the run as it
    is then.

    Raises NotFound, Conflict for a run that has ended, Unavailable (outcome unknown: it may be repeated).
    """
    run = await _open(store, run_id)
    if run.pause is None or (children and not run.pause.children):
        await store.history.append_orders([_order(WorkflowPaused, run_id, children)])
        reached("run.paused")
        run = await _open(store, run_id)
    return run


async def unpause(store: Store, run_id: str, *, children: bool = False) -> Run:
    """Let the run go on, if it is paused; with `children` the runs that its steps wait for, too. Returns the run as it
    is then. Raises as `pause`."""
    run = await _open(store, run_id)
    if run.pause is not None or children:
        await store.history.append_orders([_order(WorkflowUnpaused, run_id, children)])
        reached("run.unpaused")
        run = await get(store, run_id)  # which may have ended by now
    return run


async def pause_all(store: Store, run_ids: Sequence[str], *, children: bool = False) -> OrderedRuns:
    """Pause these runs, at most 1,000, in one batch. Those that have ended are skipped. Raises Unavailable (outcome
    unknown: it may be repeated)."""
    return await _order_all(store, WorkflowPaused, run_ids, children, _ended)


async def unpause_all(
    store: Store, run_ids: Sequence[str], *, children: bool = False, dry_run: bool = False
) -> OrderedRuns:
    """Let those of these runs, at most 1,000, go on that are paused, in one batch; the others are skipped. With
    `dry_run`, only report which would go on. Raises as `pause_all`."""
    return await _order_all(store, WorkflowUnpaused, run_ids, children, _ended_or_not_paused, dry_run=dry_run)


async def _open(store: Store, run_id: str) -> Run:
    run = await get(store, run_id)
    if run.ended:
        raise Conflict(f"run {run_id} is {run.status} already")
    return run


def _order(kind: _Order, run_id: str, children: bool) -> WorkflowPaused | WorkflowUnpaused:
    return kind(run_id=run_id, timestamp=now(), payload=PauseScope(children), v=FORMAT)


async def _order_all(
    store: Store,
    kind: _Order,
    run_ids: Sequence[str],
    children: bool,
    why_not: Callable[[Run], str],
    *,
    dry_run: bool = False,
) -> OrderedRuns:
    """Append the order to the histories of those of the runs that there is no reason against.

    The runs are read before: afterwards the shards are busy with them, and the caller would wait for that. What has
    happened to a run between the two is in the log, and only such runs are read again.
    """
    since = await store.history.last_seq()
    reasons = await _reasons(store, run_ids, why_not)
    wanted = [run_id for run_id, reason in reasons.items() if not reason]
    if wanted and not dry_run:
        seq = await store.history.append_orders([_order(kind, run_id, children) for run_id in wanted])
        reached("runs.paused")
        moved = await store.history.moved(wanted, since, seq - len(wanted))
        reasons |= await _reasons(store, moved, _ended)
    done = [run_id for run_id, reason in reasons.items() if not reason]
    return OrderedRuns(done, [Skipped(run_id, reason) for run_id, reason in reasons.items() if reason])


async def _reasons(store: Store, run_ids: Sequence[str], why_not: Callable[[Run], str]) -> dict[str, str]:
    """By run, why it does not get an order; empty if it does."""
    reasons = dict.fromkeys(run_ids, GONE)
    for chunk in chunks(run_ids):
        reasons |= {run.run_id: why_not(run) for run in await load_many(store, chunk)}
    return reasons


def _ended(run: Run) -> str:
    return f"it is {run.status}" if run.ended else ""


def _ended_or_not_paused(run: Run) -> str:
    return _ended(run) or ("it is not paused" if run.pause is None else "")
