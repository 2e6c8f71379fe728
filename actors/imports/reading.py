"""Reads runs, imported or not. Who only reads uses this; who changes a run uses runs/loading.py, which finds no
imported one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.actors.imports.document import compiled
from penstock.actors.runs.loading import LoadedRun, advance_safely, load, load_many, records
from penstock.actors.runs.past_runs import load_at
from penstock.broker.nats.buckets import Entry
from penstock.broker.records.imports import ImportedEvents, ImportMark
from penstock.broker.store import Store
from penstock.engine.errors import Invalid, NotFound
from penstock.engine.run.events import Record
from penstock.engine.run.expansion import expanded
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import Workflow


async def read_loaded(store: Store, run_id: str, snapshot: Entry | None = None) -> LoadedRun:
    """As `load`, also for an imported run."""
    loaded = await load(store, run_id, snapshot)
    if loaded.mark is None:
        return loaded
    imported = await read_import(store, loaded.mark)
    if imported is None:
        return loaded
    run, workflow = folded(imported, loaded.mark, imported_records(imported))
    return LoadedRun(run, 0, workflow=expanded(workflow, run), last_seq=loaded.last_seq, mark=loaded.mark)


async def read(store: Store, run_id: str) -> Run:
    """The run, as fresh as its log, imported or not. Raises NotFound, Unavailable."""
    run = (await read_loaded(store, run_id)).run
    if run is None:
        raise NotFound(f"run {run_id} does not exist")
    return run


async def read_at(store: Store, run_id: str, seq: int) -> Run:
    """As `load_at`. The sequences of an imported run are those of the log that it comes from."""
    try:
        return await load_at(store, run_id, seq)
    except (NotFound, Invalid):
        mark = (await load(store, run_id)).mark
        imported = None if mark is None else await read_import(store, mark)
        if mark is None or imported is None:
            raise
    return _then(imported, mark, seq)


async def read_many(store: Store, run_ids: Sequence[str], begun: Mapping[str, int] = {}) -> list[Run]:
    """As `load_many`, with imported runs."""
    found = {run.run_id: run for run in await load_many(store, run_ids, begun)}
    for run_id in run_ids:
        if run_id not in found and (run := (await read_loaded(store, run_id)).run) is not None:
            found[run_id] = run
    return [found[run_id] for run_id in run_ids if run_id in found]


async def read_import(store: Store, mark: ImportMark) -> ImportedEvents | None:
    """The document that the mark leads to; None when it is gone. Raises Unavailable."""
    return await store.imports.get(mark.run_id, mark.payload.import_id)


def imported_records(imported: ImportedEvents) -> list[Record]:
    return records(imported.events)


def folded(imported: ImportedEvents, mark: ImportMark, wanted: Sequence[Record]) -> tuple[Run | None, Workflow]:
    """The run after these of its events, and its definition."""
    workflow, run = compiled(imported.document), None
    for record in wanted:
        run, _ = advance_safely(workflow, run, record)
    if run is not None:
        run = replace(run, imported=mark.payload.import_id)
    return run, workflow


def _then(imported: ImportedEvents, mark: ImportMark, seq: int) -> Run:
    first, last = imported.events[0].seq, imported.events[-1].seq
    if seq > last:
        raise Invalid(f"at {seq} is beyond the last event of this imported run, which is {last}")
    run, _ = folded(imported, mark, [record for record in imported_records(imported) if record.seq <= seq])
    if run is None:
        raise NotFound(f"run {mark.run_id} was not there at {seq}: its first event is {first}")
    return run
