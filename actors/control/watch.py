"""Watching a run: its events as they are stored, until it has ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing

from msgspec import Raw

from penstock.actors.imports.reading import folded, imported_records, read, read_import
from penstock.actors.runs.loading import advance_safely, at_end, records, workflow_of
from penstock.broker import names
from penstock.broker.archive.archived_runs import BEGINNINGS
from penstock.broker.nats.direct import Stored
from penstock.broker.records.imports import mark_in
from penstock.broker.store import Store
from penstock.broker.streams.watch import RunEvents
from penstock.engine.errors import NotFound, Unavailable
from penstock.engine.run.event_payloads import Completed, Reply
from penstock.engine.run.events import IN_BETWEEN, STARTED_RUN, STARTED_STEP, Record, WorkflowCompleted
from penstock.engine.run.kinds.respond import reply_in
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import Workflow

LATER_MAX = 100  # events that are not folded for the time being
SOON_S = 0.05  # after an event in between, until all are read: the run may have ended before it
EVENTS_MIN = 3  # of a run that has completed: its start, something that a step did, its end


class Watched:
    """A run that is folded event by event, independently of its shard. Owned by one watcher; `run` is as fresh as the
    last event, `workflow` its definition."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store, self._run_id = store, run_id
        self.workflow: Workflow | None = None
        self.run: Run | None = None
        self.imported: Sequence[Stored] = ()
        self._later: list[Stored] = []  # not folded

    async def events(self) -> AsyncGenerator[Stored | None, None]:
        """All events until the run has ended, by its state: the first event that ends a run may not apply.

        Yields None when there is nothing more for now. Raises NotFound for a run that was never started, at the first
        None, and Unavailable when the broker is unavailable.
        """
        past = True
        async with aclosing(self._store.history.follow(self._run_id)) as following:
            async for stored in following:
                if self.run is None:
                    for event in await self._archived(stored):
                        yield event
                if stored is not None and self.run is None and await self._is_imported(stored):
                    for event in self.imported:
                        yield event
                    return
                if stored is not None:
                    await self._fold([stored])
                    yield stored
                past = past and stored is not None
                if not past:
                    if self._known().ended:
                        return
                    if stored is None:
                        yield None

    async def end(self) -> None:
        """Return once the run has ended. Raises as `events`."""
        async with self._store.history.run_events(self._run_id, may_end) as coming:
            if await self._ends_by_its_last(coming):
                return
            batch: Sequence[Stored] | None = None
            while True:
                if batch is None:
                    await self._take_stored(coming)
                else:
                    await self._take(batch)
                if not self._later and self._known().ended:
                    return
                self._check_connected()
                batch = await coming.more()

    async def _ends_by_its_last(self, coming: RunEvents) -> bool:
        """Whether the run's last event is an end that carries its state, which is then in `run`: now, or within SOON_S
        after another event. Most runs end so, and no other event need be read."""
        last = await coming.last()
        while last is not None:
            if may_end(last.data) and not _begins(last):
                self.run = await at_end(self._store, last)
                return self.run is not None
            newest = await coming.newest(SOON_S)
            last = last if newest is not None and newest.seq < last.seq else newest
        return False

    async def _take_stored(self, coming: RunEvents) -> None:
        async with aclosing(coming.stored()) as pages:
            async for page in pages:
                if self.run is None and not self._later:
                    await self._archived(page[0])
                    if self.run is None and await self._is_imported(page[0]):
                        return
                await self._take(page)
        if self.run is None and not self._later:
            await self._archived(None)

    async def _take(self, batch: Sequence[Stored]) -> None:
        """Fold these events where one of them may end the run; else they wait: the end may carry the run's state."""
        if not batch:
            return
        self._later += batch
        if len(self._later) < LATER_MAX and not any(may_end(one.data) for one in batch[_begins(batch[0]) :]):
            return
        later, self._later = self._later, []
        ended = await at_end(self._store, later[-1])
        if ended is None:
            await self._fold(later)
        else:
            self.run = ended

    async def first_answer(self, coming: AsyncGenerator[Sequence[Stored]]) -> Reply | Raw | None:
        """The first response of the run; the output with which it has completed, where that needs no fold; None when it
        has ended without a response. Then `run` is as it was at its first end, whatever came later. `coming` are its
        events from the first one; it has begun. Raises Unavailable, and NotFound for one that was removed."""
        read = False
        async for batch in coming:
            if self.run is None and (output := owner_output(batch)) is not None:
                return output
            for stored in batch:
                before = self.run
                for record in await self._fold([stored]):
                    if reply := reply_in(record.event, before, self.run):
                        return reply
                if self.run is not None and self.run.ended:
                    return None
            read = read or bool(batch)
            if not batch:  # of a busy broker, even the first event may not have been read in time
                self._known() if read else self._check_connected()
        return None

    async def _archived(self, first: Stored | None) -> Sequence[Stored]:
        """What the archive has of the run whose history begins with this message, folded into `run`."""
        if first is not None and first.data.startswith(BEGINNINGS):
            return ()
        found = await self._store.history.archived(self._run_id)
        if found is None:
            return ()
        await self._fold(found.events)
        return found.events

    async def _is_imported(self, first: Stored) -> bool:
        """Whether this first message of the history leads to an imported run, which is then in `run`, with its
        `imported` events: no more will come."""
        mark = mark_in(first.data)
        found = None if mark is None else await read_import(self._store, mark)
        if mark is None or found is None:
            return False
        self.imported = found.events
        self.run, self.workflow = folded(found, mark, imported_records(found))
        return True

    def _check_connected(self) -> None:
        if not self._store.broker.connected:
            raise Unavailable("the broker is not connected")

    def _known(self) -> Run:
        self._check_connected()
        if self.run is None:
            raise NotFound(f"run {self._run_id} does not exist")
        return self.run

    async def _fold(self, stored: Sequence[Stored]) -> Sequence[Record]:
        """Fold messages into `run`, and return them. Malformed ones change nothing, and are left out."""
        found = records(stored)
        if self.workflow is None:
            self.workflow = await workflow_of(self._store, None, found)
        if self.workflow is not None:
            for record in found:
                self.run, _ = advance_safely(self.workflow, self.run, record)
        return found


async def wait_for_end(store: Store, run_id: str, limit: AbstractAsyncContextManager[object]) -> Run:
    """The run when it has ended, or its state when the time limit is over. Raises NotFound, Unavailable."""
    watched = Watched(store, run_id)
    try:
        async with limit:
            await watched.end()
    except TimeoutError:
        return await read(store, run_id)  # what was folded so far may be any part of what has happened
    assert watched.run
    return watched.run


def may_end(body: bytes) -> bool:
    """Whether an event of this body may end its run."""
    return not body.startswith(IN_BETWEEN)


def may_answer(body: bytes) -> bool:
    """Whether an event of this body may end its run that has started, or bring a response."""
    if body.startswith(IN_BETWEEN):
        return body.startswith(STARTED_STEP) and b'"reply":' in body
    return not body.startswith(STARTED_RUN)


def _begins(first: Stored) -> bool:
    """Whether this event begins a run, and so does not end it."""
    return first.data.startswith(STARTED_RUN)


def owner_output(batch: Sequence[Stored]) -> Raw | None:
    """The output of a run, if these are all its events, nothing in between may be an answer, and the last one is the
    end that its owner wrote when it had folded all before. Then the end holds, and nobody needs to fold them again."""
    if len(batch) < EVENTS_MIN or not batch[0].data.startswith(STARTED_RUN):
        return None
    if any(may_answer(one.data) for one in batch[:-1]) or names.owner_seq(batch[-1].headers) != batch[-2].seq:
        return None
    match [record.event for record in records(batch[-1:])]:
        case [WorkflowCompleted(payload=Completed(output=output, output_bytes=0))]:
            return output
        case _:
            return None
