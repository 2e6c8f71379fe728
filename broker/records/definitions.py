"""Stored definitions: the latest under its name, and every version for ever under name and digest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.broker import names
from penstock.broker.nats.buckets import Bucket, Entry
from penstock.config.logging import get_logger
from penstock.config.process.crash_points import reached
from penstock.engine.definition.definitions import WorkflowDef, digest, from_json, to_json
from penstock.engine.errors import NeedsUpgrade, NotFound
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.workflow import Workflow

COMPILED_STEPS_MAX = 50_000  # of all compiled versions together

log = get_logger()


class Definitions:
    """The workflow_defs bucket. Compiled versions are cached: the definition of a digest never changes."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._compiled: dict[str, Workflow] = {}
        self._steps = 0

    async def register(self, definition: WorkflowDef) -> str:
        """Store a definition and make it the latest of its name; returns its digest."""
        body = to_json(definition)
        name = digest(body)
        await self._bucket.put(
            names.definition_key(definition.name, name), body
        )  # first: the latest must never name a missing one
        reached("definition.stored")
        await self._bucket.put(definition.name, body)
        return name

    async def latest(self, name: str) -> tuple[WorkflowDef, str]:
        """The latest definition of a name and its digest. Raises NotFound, NeedsUpgrade."""
        entry = await self._bucket.get(name)
        if entry is None:
            raise NotFound(f'workflow "{name}" is not registered')
        return from_json(entry.value), digest(entry.value)

    async def is_latest(self, name: str, known: str) -> bool:
        """Whether the version of digest `known`, which was read before, is still the latest, in case a change
        notification is late.

        A single broker sends notifications in time: there it returns True without a request.
        """
        if not await self._bucket.has_copies():
            return True
        entry = await self._bucket.get(name)
        return entry is not None and digest(entry.value) == known

    async def all(self) -> list[WorkflowDef]:
        """The latest definition of every name, by name, without those that need an upgrade to be read."""
        entries = await self._bucket.all()
        found = [_readable(entry) for entry in sorted(entries, key=lambda e: e.key) if "/" not in entry.key]
        return [definition for definition in found if definition is not None]

    def compiled(self, digest: str) -> Workflow | None:
        """The compiled version of a run, if it is in the cache."""
        return self._compiled.get(digest)

    async def load(self, name: str, digest: str) -> Workflow:
        """The compiled version of a run. Raises NotFound, NeedsUpgrade."""
        found = self._compiled.get(digest)
        if found is None:
            entry = await self._bucket.get(names.definition_key(name, digest))
            if entry is None:
                raise NotFound(f'workflow "{name}" has no version {digest}')
            found = compile_workflow(from_json(entry.value), digest)
            self._keep(digest, found)
        return found

    def _keep(self, digest: str, workflow: Workflow) -> None:
        """Add it to the cache. The oldest entries are removed when there are too many: runs in memory have their own
        reference."""
        self._compiled[digest] = workflow
        self._steps += len(workflow.steps)
        while self._steps > COMPILED_STEPS_MAX and len(self._compiled) > 1:
            self._steps -= len(self._compiled.pop(next(iter(self._compiled))).steps)

    async def on_change(self, callback: Callable[[str], Awaitable[None]]) -> None:
        """Call `await callback(name)` when a name gets another latest definition. Notifications may be missed."""
        await self._bucket.on_change(">", callback)


def _readable(entry: Entry) -> WorkflowDef | None:
    try:
        return from_json(entry.value)
    except NeedsUpgrade as error:
        log.warning("definition_left_out", key=entry.key, reason=str(error))
        return None
