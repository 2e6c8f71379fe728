"""Why a run waits, answered from its log and from live facts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from penstock.actors.control.run_operations import found
from penstock.actors.diagnosis.live_facts import AskedRun, live_facts
from penstock.actors.imports.reading import read
from penstock.actors.runs.loading import LoadedRun, load
from penstock.broker.nats.buckets import Entry
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.config.process.background import both
from penstock.engine.access.scopes import EVERYBODY, Caller
from penstock.engine.errors import NeedsUpgrade
from penstock.engine.run.state import RunStatus, head_of
from penstock.engine.waiting.explain import explain
from penstock.engine.waiting.reasons import WaitingReason


async def explanation(
    store: Store,
    run_id: str,
    storage_problem: Callable[[], Coroutine[Any, Any, str]],
    ahead_s: float = 0.0,
    *,
    caller: Caller = EVERYBODY,
) -> tuple[RunStatus, list[WaitingReason]]:
    """The run's status, and why it waits: empty when it has ended, and while workers carry it out.

    `storage_problem` says why nothing is stored, if that is so. `ahead_s` is added to the broker's time: what would be
    said then, if nothing changes. No run of a workflow that the caller may not deal with is named. Raises NotFound,
    Unavailable.
    """
    (loaded, last), now = await both(_loaded(store, run_id), store.history.now())
    if loaded.mark is not None:  # nobody carries it out
        return (await read(store, run_id)).status, []
    run = found(loaded, run_id)
    if run.ended or last is None:
        return run.status, []
    facts = await live_facts(store, AskedRun(loaded.workflow, run, last, caller), storage_problem, now + ahead_s)
    return run.status, explain(loaded.workflow, run, facts)


async def _loaded(store: Store, run_id: str) -> tuple[LoadedRun, Stored | None]:
    """The run, and the last event in its log. Nothing is looked for after a snapshot that has this event: to find
    nothing costs the broker milliseconds in a long log."""
    entry, last = await both(store.runs.get(run_id), store.history.last(run_id))
    if entry is None or last is None or not _has(entry, last):
        return await load(store, run_id, entry), last
    return await load(store, run_id, entry, current={entry.revision}), last


def _has(entry: Entry, last: Stored) -> bool:
    try:
        return head_of(entry.value).seq >= last.seq
    except (msgspec.MsgspecError, NeedsUpgrade):
        return False
