"""Which task types workers serve, as a front end knew it a moment ago: for the warning of a start, which must cost
nothing."""

from __future__ import annotations

import asyncio
import time

from penstock.actors.diagnosis.registrations import registrations
from penstock.broker.store import Store
from penstock.config.process.background import start
from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.errors import PenstockError
from penstock.engine.warnings import unserved_tasks

FRESH_S = 5.0  # for so long what was read is used
STALE_S = 30.0  # older than that, it is not: the start waits for what is being read beside it
DOUBTED_S = 0.5  # before a warning is given, what is older than that is read again
DEFINITIONS_MAX = 1000


class ServedTasks:
    """Owned by the backend, for the life of one connection. While runs are started, the registrations of the workers
    are read once in FRESH_S, beside the starts."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._served: frozenset[tuple[str, str | None]] | None = None
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._warnings: dict[str, list[str]] = {}

    def look(self, after_s: float = FRESH_S) -> None:
        """Have the registrations read, if that was not done lately. Does not wait."""
        if time.monotonic() - self._read_at >= after_s and self._reading is None:
            self._reading = start(self._read(), name="served_tasks")

    async def warnings(self, definition: WorkflowDef, digest: str) -> list[str]:
        """A sentence for each task type of the definition that no worker serves; empty where that is not known."""
        if self._reading is not None and time.monotonic() - self._read_at >= STALE_S:
            await asyncio.wait([self._reading])
        found = self._found(definition, digest)
        if found:
            self.look(DOUBTED_S)  # a worker may have come since
            if self._reading is not None:
                await asyncio.wait([self._reading])
                found = self._found(definition, digest)
        return found

    def _found(self, definition: WorkflowDef, digest: str) -> list[str]:
        if self._served is None:
            return []
        found = self._warnings.get(digest)
        if found is None:
            if len(self._warnings) >= DEFINITIONS_MAX:
                self._warnings.clear()
            found = self._warnings[digest] = unserved_tasks(definition, self._served)
        return found

    async def _read(self) -> None:
        try:
            known = await registrations(self._store)
        except PenstockError:
            self._served = None
        else:
            self._served = frozenset(kind for one in known.workers.values() for kind in one.kinds)
        finally:
            self._warnings.clear()
            self._read_at, self._reading = time.monotonic(), None
