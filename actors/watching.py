"""Watching a run from outside: its events as they are stored, until it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from penstock.actors import control
from penstock.actors.loading import advance_safely, records, workflow_of
from penstock.broker.direct import Stored
from penstock.broker.store import Store
from penstock.broker.watch import Rings
from penstock.engine.errors import NotFound, Unavailable
from penstock.engine.events import IN_BETWEEN
from penstock.engine.state import Run
from penstock.engine.workflow import Workflow


class Watched:
    """A run folded event by event beside its shard. Owned by one watcher; `run` is as fresh as the last event that came."""

    def __init__(self, store: Store, run_id: str, rings: Rings | None = None) -> None:
        self._store, self._run_id, self._rings = store, run_id, rings
        self._workflow: Workflow | None = None
        self.run: Run | None = None

    async def events(self) -> AsyncGenerator[Stored | None, None]:
        """All events until the run has ended: not just the first that says so, for it may not have applied.

        None when there is nothing more for the moment. Raises NotFound for a run that nobody started, at the first None,
        and Unavailable when the broker goes away.
        """
        past = True
        async with aclosing(self._store.history.follow(self._run_id, rings=self._rings)) as following:
            async for stored in following:
                if stored is not None:
                    await self._fold(stored)
                    yield stored
                past = past and stored is not None
                if not past:
                    if self._known().ended:
                        return
                    if stored is None:
                        yield None

    def _known(self) -> Run:
        if not self._store.broker.connected:
            raise Unavailable("the broker is not connected")
        if self.run is None:
            raise NotFound(f"run {self._run_id} does not exist")
        return self.run

    async def _fold(self, stored: Stored) -> None:
        """What is no event changes nothing."""
        found = records([stored])
        if self._workflow is None:
            self._workflow = await workflow_of(self._store, None, found)
        if self._workflow is not None:
            for record in found:
                self.run, _ = advance_safely(self._workflow, self.run, record)


async def wait_for_end(store: Store, run_id: str, timeout_s: float) -> Run:
    """The run once it has ended, or as it is when the time is over. Raises NotFound, Unavailable."""
    watched = Watched(store, run_id, _may_end)
    try:
        async with asyncio.timeout(timeout_s), aclosing(watched.events()) as events:
            async for _ in events:
                pass
    except TimeoutError:
        return await control.get(store, run_id)  # what was folded so far may be any part of what has happened
    assert watched.run
    return watched.run


def _may_end(body: bytes) -> bool:
    return not body.startswith(IN_BETWEEN)
