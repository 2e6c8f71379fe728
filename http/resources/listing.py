"""One page of runs: ids from the index, the runs themselves from the store."""

from __future__ import annotations

from urllib.parse import urlencode

from falcon.asgi import Request
from msgspec import Struct

from penstock.actors.index.run_index import RunIndex
from penstock.actors.runs.loading import load_many
from penstock.actors.runs.outputs import left_behind
from penstock.broker.store import Store
from penstock.config.limits import MIB
from penstock.engine.run.state import Run
from penstock.http.messages.params import Filter

CHUNK = 250
PAGE_BYTES_MAX = 32 * MIB


class RunsPage(Struct, frozen=True):
    """`next` is the cursor of the next page, None at the end."""

    runs: list[Run]
    next: str | None


async def page(store: Store, index: RunIndex, wanted: Filter) -> RunsPage:
    """Up to `limit` runs from the index, fewer when they are large. Raises Invalid for an unknown cursor, Unavailable
    without an index."""
    statuses = frozenset({wanted.status}) if wanted.status else None
    runs: list[Run] = []
    cursor, size = wanted.cursor, 0
    while True:
        limit = min(CHUNK, wanted.limit - len(runs))
        bounds = (wanted.after, wanted.before, limit, cursor)
        found = index.query(wanted.workflow, statuses, *bounds, wanted.prefix, wanted.parent)
        loaded = await load_many(store, found.run_ids)
        runs += (run for run in loaded if wanted.status in (None, run.status))
        cursor, size = found.next, size + sum(map(_size, loaded))
        if cursor is None or len(runs) >= wanted.limit or size >= PAGE_BYTES_MAX:
            return RunsPage(runs, cursor)


def link(req: Request, cursor: str) -> str:
    """The Link header's value: the next page of this list."""
    query = urlencode({**req.params, "cursor": cursor})
    return f'<{req.path}?{query}>; rel="next"'


def _size(run: Run) -> int:
    """Total size of its input and outputs in bytes, wherever they are stored."""
    outputs = (memoryview(step.output).nbytes for step in run.steps.values() if step.output)
    return memoryview(run.input).nbytes + sum(outputs) + sum(kept.size for kept in left_behind(run))
