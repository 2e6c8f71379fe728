"""The definition cache, so that starting a run needs no read: the latest of each name, its digest, its compiled
schema."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import UNSET, Struct

from penstock.broker.records.definitions import Definitions
from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.definition.identifiers import problem_with
from penstock.engine.definition.schema import Schema
from penstock.engine.errors import Invalid, NotFound, UnknownWorkflow

NAMES_MAX = 1000
VERSIONS_MAX = 100  # that requests have named, with their schemas


class Known(Struct, frozen=True):
    """`digest` identifies the version; `schema` is that of its input, if it declares one."""

    definition: WorkflowDef
    digest: str
    schema: Schema | None


class Catalog:
    """Owned by the backend, for the life of one connection. A change notification removes one definition, a reconnect
    removes all."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._known: dict[str, Known] = {}
        self._versions: dict[str, Known] = {}
        self._changes = 0

    async def watch(self) -> None:
        """Subscribe to notifications of definitions that other processes register."""
        await self._definitions.on_change(self._changed)

    async def forget_all(self) -> None:
        self._known.clear()
        self._changes += 1

    async def register(self, definition: WorkflowDef) -> None:
        """Make it the latest of its name. Runs started through this catalog afterwards have it."""
        await self._definitions.register(definition)
        await self._changed(definition.name)

    async def wanted(self, name: str, version: str | None = None) -> Known:
        """The definition that a request names, the latest one without a version. Raises UnknownWorkflow, which is
        Invalid because the request is wrong; NotFound for a version that it does not have."""
        try:
            known = await self.latest(name)
        except NotFound as error:
            raise UnknownWorkflow(str(error)) from error
        return known if version is None else await self._version(name, version)

    async def latest(self, name: str) -> Known:
        """The latest definition of a name. Raises Invalid for what is no name, NotFound for a workflow that is not
        registered."""
        known = self._known.get(name)
        if known is not None and await self._definitions.is_latest(name, known.digest):
            return known
        if problem := problem_with("workflow", name):
            raise Invalid(problem)
        return await self._read(name)

    async def _version(self, name: str, version: str) -> Known:
        definition, digest = await self._definitions.version(name, version)
        known = self._versions.get(digest) or _known(definition, digest)
        if len(self._versions) >= VERSIONS_MAX:
            self._versions.clear()
        self._versions[digest] = known
        return known

    async def delete(self, name: str, check: Callable[[], Awaitable[None]] | None = None) -> None:
        """Forget the workflow, unless `check` raises what stands against it. Nothing starts a run of it through this
        catalog afterwards. Raises NotFound."""
        await self._definitions.delete(name, check)
        await self._changed(name)

    async def _read(self, name: str) -> Known:
        changes = self._changes
        definition, digest = await self._definitions.latest(name)
        known = _known(definition, digest)
        if changes == self._changes:  # else what was read may be old already
            self._keep(name, known)
        return known

    def _keep(self, name: str, known: Known) -> None:
        if len(self._known) >= NAMES_MAX:
            self._known.clear()
        self._known[name] = known

    async def _changed(self, name: str) -> None:
        self._known.pop(name, None)
        self._changes += 1


def _known(definition: WorkflowDef, digest: str) -> Known:
    schema = None if definition.input_schema is UNSET else Schema(definition.input_schema)
    return Known(definition, digest, schema)
