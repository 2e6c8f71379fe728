"""Load a run from the store: its snapshot, and the events of its history after it. A read is as fresh as the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec
from msgspec import Struct

from penstock.broker.nats.buckets import Entry
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.config.limits import SCHEDULE_AHEAD_MIN_S, SNAPSHOT_AFTER_S
from penstock.config.logging import get_logger
from penstock.config.process.background import all_of
from penstock.engine import formats
from penstock.engine.definition.identifiers import is_run_id
from penstock.engine.errors import NeedsUpgrade, NotFound
from penstock.engine.run.advance import advance, still_due
from penstock.engine.run.commands import Command
from penstock.engine.run.events import (
    Malformed,
    ParentRef,
    Record,
    WorkflowScheduled,
    WorkflowStarted,
    decode,
    event_type,
)
from penstock.engine.run.expansion import expanded
from penstock.engine.run.state import Run, RunStatus, from_snapshot
from penstock.engine.run.workflow import Workflow

READS_AT_ONCE = 64
YOUNG_S = SNAPSHOT_AFTER_S  # less than the broker's 5 s window for repeated message ids: see RunActor._open_new
FINAL = frozenset(
    {RunStatus.COMPLETED, RunStatus.CANCELLED}
)  # no event changes such a run; a failed one may be resumed

FAILED: list[Command] = []

OnFold: TypeAlias = Callable[[Workflow, Run | None, Run | None, Record], None]
"""Called for each event that is folded, with the run before and after it."""

log = get_logger()


class LoadedRun(Struct, frozen=True):
    """A run as `load` found it.

    `due` are the commands of the events after the snapshot, which may have been carried out or not; doing them again is
    safe. `revision` is the snapshot's (0: there is none). `beyond` counts the events folded on top of it. `last_seq` is
    the last sequence of the run's history (0: it has none), for an append that expects it.
    """

    run: Run | None
    revision: int
    beyond: int = 0
    due: tuple[Command, ...] = ()
    workflow: Workflow | None = None
    last_seq: int = 0


async def load(
    store: Store,
    run_id: str,
    snapshot: Entry | None = None,
    on_fold: OnFold | None = None,
    current: Container[int] = (),
) -> LoadedRun:
    """The run as its log says now. `snapshot` saves a read when the caller has it. `current` are revisions of snapshots
    after which the log has nothing that the caller wants: finding the next event of one run costs the broker a search.

    Raises Unavailable; NeedsUpgrade, which is one, when only a newer version can read the log.
    """
    entry = snapshot or await store.runs.get(run_id)
    run = _decoded(entry)
    if entry is not None and run is not None and (run.status in FINAL or entry.revision in current):
        return LoadedRun(run, entry.revision, workflow=await _whole(store, run))
    last_seq = run.seq if run else 0
    workflow = None if run is None else await workflow_of(store, run, ())
    commands: list[Command] = []
    beyond = 0
    async for page in store.history.pages(run_id, last_seq):
        last_seq, tail = page[-1].seq, records(page)
        workflow = workflow or await workflow_of(store, run, tail)
        if workflow is None:
            continue
        beyond += len(tail)
        for record in tail:
            before = run
            run, ordered = advance_safely(workflow, run, record)
            commands += ordered
            if on_fold is not None:
                on_fold(expanded(workflow, run), before, run, record)
    if workflow is None and entry is not None:
        formats.check(
            entry.value
        )  # without its beginning in the log, all there is of the run is a newer version's snapshot
    revision = entry.revision if entry else 0
    workflow = None if workflow is None else expanded(workflow, run)
    due = () if run is None else tuple(command for command in commands if still_due(run, command))
    return LoadedRun(run, revision, beyond, due, workflow, last_seq)


def advance_safely(workflow: Workflow, run: Run | None, record: Record) -> tuple[Run | None, list[Command]]:
    """Call `advance`. An event that makes it fail, which is a bug, changes nothing, for readers and owners alike: else
    they would disagree. The commands are then the object FAILED, by which the owner knows that it must dead-letter the
    event."""
    try:
        return advance(workflow, run, record)
    except Exception:
        log.exception("advance_failed", run_id=record.event.run_id, seq=record.seq, event_type=event_type(record.event))
        return run, FAILED


def is_first(event: WorkflowStarted | WorkflowScheduled, at: float) -> bool:
    """Whether this event, stored at that time, is certainly the first of its run."""
    if isinstance(event, WorkflowStarted):
        if isinstance(event.payload.parent, ParentRef):
            return True
        if waited_for_its_time(event):
            return False  # it may have been cancelled, and its former actor be gone
    return is_young(event.run_id, at)


def is_young(run_id: str, now: float) -> bool:
    """Whether a time-ordered run id was made less than 3 s before (or after) `now`, in s since the epoch."""
    return is_run_id(run_id) and run_id[12] == "7" and abs(now - _made_at(run_id)) < YOUNG_S


def waited_for_its_time(started: WorkflowStarted) -> bool:
    """Whether a run with a time-ordered id was scheduled, or may have been: its start's timestamp is well after the id.

    Both come from one clock, the front end's: it does not matter how long the event was in flight.
    """
    try:
        start_at = datetime.fromisoformat(started.timestamp).timestamp()
    except ValueError:
        return True
    return start_at - _made_at(started.run_id) > SCHEDULE_AHEAD_MIN_S / 2


def _made_at(run_id: str) -> float:
    return int(run_id[:12], 16) / 1000


async def snapshots(store: Store, run_ids: Sequence[str]) -> dict[str, Run]:
    """The runs by id, as of their snapshots, which may be seconds behind the log. Those without a readable one are left
    out."""
    found = {run_id: _decoded(entry) for run_id, entry in (await store.runs.get_many(run_ids)).items()}
    return {run_id: run for run_id, run in found.items() if run is not None}


async def load_many(store: Store, run_ids: Sequence[str]) -> list[Run]:
    """The runs in the given order, as fresh as the log, without unknown ones and those that wait for an upgrade."""
    entries = await store.runs.get_many(run_ids)
    gate = asyncio.Semaphore(READS_AT_ONCE)

    async def one(run_id: str) -> Run | None:
        entry = entries.get(run_id)
        run = _decoded(entry)
        if run is not None and run.status in FINAL:
            return run
        async with gate:
            try:
                return (await load(store, run_id, entry)).run
            except NeedsUpgrade as error:
                log.warning("run_left_out", run_id=run_id, reason=str(error))
                return None

    found = await all_of(map(one, run_ids))
    return [run for run in found if run is not None]


def records(stored: Sequence[Stored]) -> list[Record]:
    """Decode stored history messages; malformed ones are left out. Raises NeedsUpgrade for one that a newer version can
    read."""
    found = []
    for one in stored:
        try:
            found.append(Record(one.seq, one.at, decode(one.data)))
        except Malformed:
            continue  # the shard has dead-lettered it
    return found


def _decoded(entry: Entry | None) -> Run | None:
    """The run in a snapshot. None for an unreadable one, too: the log has everything."""
    if entry is None:
        return None
    try:
        return from_snapshot(entry.value)
    except NeedsUpgrade:
        return None
    except msgspec.MsgspecError as error:
        log.error("snapshot_unreadable", key=entry.key, error=str(error))
        return None


async def workflow_of(store: Store, run: Run | None, tail: Sequence[Record]) -> Workflow | None:
    """The definition that the run keeps; None when nothing has been started under this id, or when it is not in the
    store."""
    if run is not None:
        return await _definition(store, run.run_id, run.workflow_id, run.digest)
    for record in tail:
        if isinstance(record.event, WorkflowStarted | WorkflowScheduled):
            payload = record.event.payload
            return await _definition(store, record.event.run_id, payload.workflow, payload.digest)
    return None


async def _whole(store: Store, run: Run) -> Workflow | None:
    workflow = await workflow_of(store, run, ())
    return None if workflow is None else expanded(workflow, run)


async def _definition(store: Store, run_id: str, name: str, digest: str) -> Workflow | None:
    """None for a definition that was removed or overwritten: it must stop neither a list of runs nor a partition."""
    try:
        return await store.definitions.load(name, digest)
    except (NotFound, msgspec.MsgspecError) as error:
        log.error("definition_missing", run_id=run_id, error=str(error))
        return None
