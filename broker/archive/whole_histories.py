"""Whole histories: the events of a run wherever they are, in its history, in the archive, or in both.

What the archive has of a run comes first. The rest stands in the history, behind a mark that leads to the archive; a
run that has nothing there is looked for in the run index.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from penstock.broker import names
from penstock.broker.archive.archive import Archive
from penstock.broker.archive.archived_runs import BEGINNINGS, ArchivedRun, archive_mark_in
from penstock.broker.nats.direct import PAGE, DirectReader, Stored

YOUNG_S = 1.0  # a run that began later is not archived: it has not ended long ago


async def archived_part(archive: Archive, run_id: str, page: Sequence[Stored], *, by_index: bool) -> ArchivedRun | None:
    """What the archive has of a run whose history begins with this page; None: all is in the history, or nothing is
    known of the run. Raises Unavailable."""
    for stored in reversed(page):
        if (mark := archive_mark_in(stored.data)) is not None:
            return await archive.marked(mark)
    if not by_index or (page and page[0].data.startswith(BEGINNINGS)):
        return None
    return await archive.find(run_id)


async def whole_pages(
    archive: Archive,
    run_id: str,
    after: int,
    history: AsyncGenerator[list[Stored]],
    reader: DirectReader,
    *,
    by_index: bool,
) -> AsyncGenerator[list[Stored]]:
    """The events after a sequence, in order, a page at a time; `history` has those that are there. Marks are among
    them. Without `by_index`, only marks lead to the archive."""
    first: Stored | None = None
    last = after
    async with aclosing(history):
        async for page in history:
            if first is None:
                first = page[0]
                begins = not after and by_index
                for part in _paged(await archived_part(archive, run_id, page, by_index=begins), last):
                    yield part
                    last = part[-1].seq
            rest = page if page[0].seq > last else [one for one in page if one.seq > last]
            if rest:
                yield rest
                last = rest[-1].seq
    for part in _paged(await _gone_meanwhile(archive, run_id, first, reader, by_index=by_index), last):
        yield part


async def _gone_meanwhile(
    archive: Archive, run_id: str, first: Stored | None, reader: DirectReader, *, by_index: bool
) -> ArchivedRun | None:
    """The run, if it was archived before its history was read, or meanwhile: what was read is the beginning then."""
    if first is None:
        return await archive.find(run_id) if by_index else None
    if time.time() - first.at < YOUNG_S or not await archive.in_use():
        return None
    if await reader.surely_at(names.HISTORY, first.seq) is not None:
        return None
    return await archive.find(run_id)


def _paged(run: ArchivedRun | None, after: int) -> list[list[Stored]]:
    events = [] if run is None else list(run.after(after))
    return [events[at : at + PAGE] for at in range(0, len(events), PAGE)]
