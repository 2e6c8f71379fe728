"""/runs/{run_id}/steps/{step_id}/items: the elements of a map. What the state does not have is read from the log."""

from __future__ import annotations

import asyncio
from itertools import islice

from falcon.asgi import Request, Response
from msgspec import UNSET, Raw, UnsetType

from penstock.actors.imports.reading import read_loaded
from penstock.actors.runs.outputs import events_of
from penstock.broker.store import Store
from penstock.client.views import MapItemView
from penstock.config.limits import OUTPUT_INLINE_BYTES_MAX
from penstock.config.process.background import all_of
from penstock.engine.errors import NotFound
from penstock.engine.run.events import ChildEnded, Event, Malformed, StepFailed, decode
from penstock.engine.run.execution.children import child_run_id
from penstock.engine.run.execution.deliveries import began_at
from penstock.engine.run.items import Element, ItemStatus
from penstock.engine.run.kinds.map import MapChild
from penstock.engine.run.payloads import child_problem, payload_of
from penstock.engine.run.state import ITEM_STEP, Run, StepStatus
from penstock.engine.run.workflow import Workflow
from penstock.http.backend import Backend
from penstock.http.messages import params, responses
from penstock.http.messages.params import ItemFilter

READS_AT_ONCE = 16


class MapItemsResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, run_id: str, step_id: str) -> None:
        """The elements of a map, by number; a Link leads to the next page."""
        found, step, wanted = params.run_id(run_id), params.step_id(step_id), params.item_filter(req)
        store = self._backend.store
        loaded = await read_loaded(store, found)
        run = loaded.run
        if run is None:
            raise NotFound(f"run {found} does not exist")
        if loaded.workflow is None:
            raise NotFound(f"the definition of run {found} is not in the store")
        page = await items_of_map(store, loaded.workflow, run, step, wanted)
        responses.ok(resp, page)
        if len(page) == wanted.limit:
            resp.set_header("Link", responses.link(req, str(page[-1].item + 1)))


async def items_of_map(
    store: Store, workflow: Workflow, run: Run, step_id: str, wanted: ItemFilter
) -> list[MapItemView]:
    """The elements of the map that are wanted, by number.

    Raises NotFound when the step is no map that has begun, Unavailable.
    """
    step, plan = run.steps.get(step_id), workflow.steps.get(step_id)
    if step is None or plan is None or step.items is None:
        raise NotFound(f'run {run.run_id} has no map "{step_id}" that has begun')
    found = (
        one for one in step.items.numbered() if one[0] >= wanted.cursor and wanted.status in (None, _status(one[1]))
    )
    has_children = plan.each is not None and isinstance(plan.each.kind, MapChild)
    gate = asyncio.Semaphore(READS_AT_ONCE)

    async def one(number: int, element: Element) -> MapItemView:
        async with gate:
            return await _view(store, run, f"{step_id}.{number}", number, element, has_children)

    return await all_of(one(number, element) for number, element in islice(found, wanted.limit))


async def _view(store: Store, run: Run, item_id: str, number: int, element: Element, has_children: bool) -> MapItemView:
    begun = await _event(store, run, element.begun)
    ended = await _event(store, run, element.begun + element.ended) if element.ended else None
    start = begun or ended  # the end may say when it began
    output = _output(ended)
    large = output is not None and memoryview(output).nbytes > OUTPUT_INLINE_BYTES_MAX
    return MapItemView(
        number,
        _status(element),
        element.attempts,
        child_run_id(run.run_id, item_id, element.attempts) if has_children and element.begun else None,
        None if began_at(start) is None else getattr(start, "worker_id", None),
        began_at(start),
        ended.timestamp if ended is not None else None,
        UNSET if large or output is None else output,
        memoryview(output).nbytes if large and output is not None else UNSET,
        _error(ended),
    )


def _status(element: Element) -> str:
    """As that of a step; what waits is queued."""
    return StepStatus.QUEUED if element.status == ItemStatus.WAITING else ITEM_STEP[element.status]


async def _event(store: Store, run: Run, seq: int) -> Event | None:
    stored = await (await events_of(store, run)).at(run.run_id, seq) if seq else None
    try:
        return None if stored is None else decode(stored.data)
    except Malformed:  # the stream was created again, and has another message there
        return None


def _output(ended: Event | None) -> Raw | None:
    output = None if ended is None else payload_of(ended)
    return None if output is None or isinstance(output, UnsetType) else output


def _error(ended: Event | None) -> str | None:
    match ended:
        case StepFailed():
            return ended.payload.error
        case ChildEnded():
            return child_problem(ended.payload)
        case _:
            return None
