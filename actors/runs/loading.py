"""Load a run from the store: its snapshot, and the events of its history after it. A read is as fresh as the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Container, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from penstock.broker.archive.archived_runs import ArchivedRun, archive_seq, archived_in, is_archive_mark
from penstock.broker.names import owner_state
from penstock.broker.nats.buckets import Entry
from penstock.broker.nats.direct import Stored
from penstock.broker.nats.headers import stored_behind
from penstock.broker.records.imports import ImportMark, mark_in
from penstock.broker.store import Store
from penstock.config.logging import get_logger
from penstock.config.process.background import all_of, both
from penstock.engine import formats
from penstock.engine.errors import NeedsUpgrade, NotFound
from penstock.engine.run.advance import advance
from penstock.engine.run.commands import Command
from penstock.engine.run.events import (
    REMOVED_RUN,
    Malformed,
    Record,
    WorkflowRemoved,
    WorkflowScheduled,
    WorkflowStarted,
    decode,
    event_type,
)
from penstock.engine.run.expansion import expanded
from penstock.engine.run.state import Run, RunStatus, from_snapshot
from penstock.engine.run.still_due import still_due
from penstock.engine.run.workflow import Workflow

READS_AT_ONCE = 64
ALL = 2**63 - 1  # sequences
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
    safe. `revision` is the snapshot's (0: there is none). `beyond` counts the events folded on top of it, which have
    `beyond_bytes`. `last_seq` is the last sequence of the run's history (0: it has none), for an append that expects
    it. `removed` is the sequence of the event that removed the run, which is None then; 0: none did. `mark`: there is
    no run, and the id is that of an imported one (imports/reading.py reads it). `archived` is the message of the
    archive that has the run: to go on, it must be brought back; 0: all that is not in the history is led to by it.
    `carried`: the state is that of the end, which carries it. A snapshot is older then.
    """

    run: Run | None
    revision: int
    beyond: int = 0
    due: tuple[Command, ...] = ()
    workflow: Workflow | None = None
    last_seq: int = 0
    removed: int = 0
    mark: ImportMark | None = None
    archived: int = 0
    beyond_bytes: int = 0
    carried: bool = False


class Owner(NamedTuple):
    """Who loads a run in order to go on with it: what the events before the sequence `handled_before` ordered is done,
    and `on_fold` is called for each later one."""

    handled_before: int
    on_fold: OnFold


async def load(
    store: Store,
    run_id: str,
    snapshot: Entry | None = None,
    current: Container[int] = (),
    *,
    owner: Owner | None = None,
    by_index: bool = True,
    newest: tuple[Entry | None, Stored | None] | None = None,
) -> LoadedRun:
    """The run as its log says now. `snapshot` saves a read when the caller has it. `current` are revisions of snapshots
    after which the log has nothing that the caller wants: finding the next event of one run costs the broker a search.
    `newest` is the snapshot with the last event, where the caller has read both just now.
    Without `by_index`, an archived run is not there unless its history leads to the archive.

    Raises Unavailable; NeedsUpgrade, which is one, when only a newer version can read the log.
    """
    entry, last = newest or await _newest(store, run_id, snapshot, current)
    if last is not None and (ended := await at_end(store, last)) is not None:
        revision, workflow = entry.revision if entry else 0, await _whole(store, ended)
        return LoadedRun(ended, revision, workflow=workflow, last_seq=last.seq, carried=True)
    run = _decoded(entry)
    if entry is not None and run is not None and (run.status in FINAL or entry.revision in current):
        return LoadedRun(run, entry.revision, workflow=await _whole(store, run))
    if entry is not None and run is not None and last is not None and run.seq == last.seq and not run.removed:
        return LoadedRun(run, entry.revision, workflow=await _whole(store, run), last_seq=last.seq)
    last_seq = run.seq if run else 0
    workflow = None if run is None else await workflow_of(store, run, ())
    commands: list[Command] = []
    beyond = beyond_bytes = removed = archived = gap = 0
    handled_before = 0 if owner is None else owner.handled_before
    mark: ImportMark | None = None
    known = None if last is None else await _with_known(store, run, last)
    pages = (
        store.history.pages(run_id, last_seq, ahead_to=ALL, by_index=by_index and run is None, last=last)
        if known is None
        else _pages_of(known)
    )
    async for page in pages:
        ended, after = await _end_within(store, page)
        if ended is not None:
            run, workflow, commands, beyond, beyond_bytes = ended, await workflow_of(store, ended, ()), [], 0, 0
        tail = records(page[after:])
        before_page = last_seq
        if seq := archive_seq(page[0]):
            archived = seq
        else:
            last_seq, archived = page[-1].seq, archived_in(page, archived)
        gap = gap or _removal_behind_gap(page, before_page)
        workflow = workflow or await workflow_of(store, run, tail)
        if workflow is None:
            removed = max([removed, *(one.seq for one in tail if isinstance(one.event, WorkflowRemoved))])
            mark = mark or mark_in(page[0].data)
            continue
        beyond, beyond_bytes = beyond + len(tail), beyond_bytes + sum([len(one.data) for one in page[after:]])
        for record in tail:
            before = run
            run, ordered = advance_safely(workflow, run, record)
            if record.seq < handled_before:
                continue  # that was carried out, and counted
            commands += ordered
            if owner is not None and not archive_seq(page[0]):
                owner.on_fold(expanded(workflow, run), before, run, record)
    if workflow is None and entry is not None:
        formats.check(
            entry.value
        )  # without its beginning in the log, all there is of the run is a newer version's snapshot
    revision = entry.revision if entry else 0
    removed = removed if run is None else run.seq if run.removed else gap
    if removed:
        return LoadedRun(None, revision, last_seq=last_seq, removed=removed)
    workflow = None if workflow is None else expanded(workflow, run)
    due = () if run is None else tuple(command for command in commands if still_due(run, command))
    return LoadedRun(run, revision, beyond, due, workflow, last_seq, 0, mark, archived, beyond_bytes)


async def _with_known(store: Store, run: Run | None, last: Stored) -> list[Stored] | None:
    """The last event of a run's log, behind the one before it if the snapshot `run` does not have that. To find the
    next event the broker searches all that was stored in between: for one that comes long after the others, such as a
    retry or a removal, in seconds. None: it does not say which was before it, or the state is not known there."""
    before = stored_behind(last.headers)
    if not before or is_archive_mark(last.data):
        return None
    if run is not None and run.seq == before:
        return [last]
    prior = await store.history.at(last.subject.rpartition(".")[2], before)
    return None if prior is None or await at_end(store, prior) is None else [prior, last]


def _removal_behind_gap(page: Sequence[Stored], before: int) -> int:
    """The sequence of the removal in the page that was stored behind an event which is not there any more; `before` is
    the last sequence before the page. It counts without that: the run had ended, and its events are being deleted, the
    last one first. 0: there is none."""
    for one in page:
        if one.data.startswith(REMOVED_RUN) and before < stored_behind(one.headers):
            return one.seq
        before = one.seq
    return 0


async def _pages_of(events: list[Stored]) -> AsyncGenerator[list[Stored]]:
    yield events


async def _newest(
    store: Store, run_id: str, snapshot: Entry | None, current: Container[int]
) -> tuple[Entry | None, Stored | None]:
    """The run's snapshot, and the last event of its log; None for that where it is not looked for, as the
    snapshot is current."""
    if current:
        entry = snapshot or await store.runs.get(run_id)
        is_current = entry is not None and entry.revision in current
        return entry, None if is_current else await store.history.last(run_id)
    if snapshot is not None:
        return snapshot, await store.history.last(run_id)
    return await both(store.runs.get(run_id), store.history.last(run_id))


async def at_end(store: Store, last: Stored) -> Run | None:
    """The run that has ended by this last event of its log, if the event carries its state."""
    run = _carried(last)
    return None if run is None else _ended(await workflow_of(store, run, ()), run, last)


def _at_end_now(store: Store, last: Stored) -> Run | None:
    """As `at_end`; None also where the definition must be read first, or an upgrade is needed."""
    if (known := store.ended_runs.get(last)) is not None:
        return known
    with suppress(NeedsUpgrade):
        run = _carried(last)
        ended = None if run is None else _ended(store.definitions.compiled(run.digest), run, last)
        if ended is not None:
            store.ended_runs.keep(last, ended)
        return ended
    return None


def _carried(last: Stored) -> Run | None:
    """The state that an event carries: that of the run before it."""
    state = owner_state(last.headers)
    try:
        return None if state is None else from_snapshot(state)
    except msgspec.MsgspecError as error:
        log.error("end_state_unreadable", seq=last.seq, error=str(error))
        return None


def _ended(workflow: Workflow | None, run: Run, last: Stored) -> Run | None:
    """The run after its end; None if it has not ended with it, or without its definition."""
    found = records([last])
    ended = advance_safely(expanded(workflow, run), run, found[0])[0] if workflow is not None and found else None
    return ended if ended is not None and ended.ended else None


async def _end_within(store: Store, page: Sequence[Stored]) -> tuple[Run | None, int]:
    """The run at the last event in the page that is an end with its state, and how many events are before what follows;
    None and 0 without one. Such events were folded and counted by their owner."""
    for place in range(len(page) - 1, -1, -1):
        if page[place].headers and (ended := await at_end(store, page[place])) is not None:
            return ended, place + 1
    return None, 0


def advance_safely(workflow: Workflow, run: Run | None, record: Record) -> tuple[Run | None, list[Command]]:
    """Call `advance`. An event that makes it fail, which is a bug, changes nothing, for readers and owners alike: else
    they would disagree. The commands are then the object FAILED, by which the owner knows that it must dead-letter the
    event."""
    try:
        return advance(workflow, run, record)
    except Exception:
        log.exception("advance_failed", run_id=record.event.run_id, seq=record.seq, event_type=event_type(record.event))
        return run, FAILED


async def snapshots(store: Store, run_ids: Sequence[str]) -> dict[str, Run]:
    """The runs by id, as of their snapshots, which may be seconds behind the log. Those without a readable one are left
    out."""
    found = {run_id: _decoded(entry) for run_id, entry in (await store.runs.get_many(run_ids)).items()}
    return {run_id: run for run_id, run in found.items() if run is not None}


async def load_many(
    store: Store, run_ids: Sequence[str], begun: Mapping[str, int] = {}, *, by_index: bool = True
) -> list[Run]:
    """The runs in the given order, as fresh as the log, without unknown ones and those that wait for an upgrade.

    `begun` are runs with the sequence of their first event, where somebody knows it: nothing else is looked for in the
    history of a run that has only this one. `by_index` as in `load`.
    """
    known = await store.history.surely_last_of(run_ids) if len(run_ids) > 1 else None
    lasts = known or {}
    found = {run_id: _at_end_now(store, lasts[run_id]) if run_id in lasts else None for run_id in run_ids}
    entries = await store.runs.get_many([run_id for run_id, run in found.items() if run is None])
    for run_id, entry in entries.items():
        run, last = _decoded(entry), lasts.get(run_id)
        if run is not None and (run.status in FINAL or (last is not None and run.seq == last.seq and not run.removed)):
            found[run_id] = run
    gate = asyncio.Semaphore(READS_AT_ONCE)

    async def one(run_id: str) -> Run | None:
        entry, last = entries.get(run_id), lasts.get(run_id)
        async with gate:
            try:
                if last is not None and (ended := await at_end(store, last)) is not None:
                    return ended
                is_first = entry is None and last is not None and begun.get(run_id) == last.seq
                only = await _of_first(store, last) if last is not None and is_first else None
                newest = (entry, last) if last is not None else None
                return only or (await load(store, run_id, entry, by_index=by_index, newest=newest)).run
            except NeedsUpgrade as error:
                log.warning("run_left_out", run_id=run_id, reason=str(error))
                return None

    without = {one for one in found if known is not None and one not in known and one not in entries}
    others = [run_id for run_id, run in found.items() if run is None and run_id not in without]
    if others:
        found |= zip(others, await all_of(map(one, others)), strict=True)
    if by_index and without:
        found |= await _archived_runs(store, sorted(without))
    return [run for run in found.values() if run is not None]


async def _archived_runs(store: Store, run_ids: Sequence[str]) -> dict[str, Run | None]:
    """Those of these runs that are archived."""
    archived = await store.archive.find_all(run_ids)
    runs = await all_of(folded_archived(store, one) for one in archived.values())
    return dict(zip(archived, runs, strict=True))


async def folded_archived(store: Store, archived: ArchivedRun) -> Run | None:
    """The run after all its events that the archive has; None without its definition."""
    tail, run = records(archived.events), None
    workflow = await workflow_of(store, None, tail)
    for record in tail if workflow is not None else ():
        assert workflow is not None
        run, _ = advance_safely(workflow, run, record)
    return run


async def _of_first(store: Store, first: Stored) -> Run | None:
    """The run after its first event; None where that does not begin one."""
    tail = records([first])
    workflow = await workflow_of(store, None, tail)
    return None if workflow is None else advance_safely(workflow, None, tail[0])[0]


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
