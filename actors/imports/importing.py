"""Importing a run: a record of what happened elsewhere, stored as one document beside the history."""

from __future__ import annotations

import asyncio
import time

from penstock.actors.imports.document import check
from penstock.broker.records.imports import FORMAT, ImportDocument, ImportedHead, ImportMark, encode_mark
from penstock.broker.store import Store
from penstock.config.process.author import author
from penstock.config.process.crash_points import reached
from penstock.engine.errors import Conflict
from penstock.engine.run.state import Run
from penstock.engine.times import rfc3339


async def checked(document: ImportDocument) -> Run:
    """The run of the document. Raises Invalid with all problems, each with its place."""
    return await asyncio.to_thread(check, document)


async def store_run(store: Store, document: ImportDocument, run: Run) -> int:
    """Store a document that was checked under the id of its run. Returns the sequence from which on the index has it.

    Raises Conflict for an id that a run or an import has, TooLarge for more than the broker takes in a message,
    Unavailable (outcome unknown: after a repeat, Conflict may mean that it was stored).
    """
    if await store.runs.get(run.run_id) is not None or await store.history.begun([run.run_id]):
        raise _taken(run)
    import_id = await store.imports.put(document)
    reached("import.stored")
    try:
        seq = await store.history.mark(run.run_id, encode_mark(_mark(run, import_id)))
    except Conflict as error:
        await store.imports.remove(run.run_id, import_id)
        raise _taken(run) from error
    reached("import.marked")
    return seq


def _mark(run: Run, import_id: str) -> ImportMark:
    head = ImportedHead(
        import_id,
        run.workflow_id,
        run.status,
        run.created_at,
        run.rerun_of,
        run.parent,
        run.trigger,
        run.labels,
        author(),
        run.pause is not None,
    )
    return ImportMark(run_id=run.run_id, timestamp=rfc3339(time.time()), v=FORMAT, payload=head)


def _taken(run: Run) -> Conflict:
    return Conflict(f"run {run.run_id} exists already")
