"""The definitions of a service in memory: registered as the real one does it, and compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import orjson
from msgspec import Struct

from penstock.engine.definition.definitions import WorkflowDef, digest, to_json
from penstock.engine.definition.identifiers import quoted
from penstock.engine.definition.schema import Schema, Schemas
from penstock.engine.errors import Invalid, NotFound
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.workflow import Workflow
from penstock.engine.validation import parse

if TYPE_CHECKING:
    from penstock.authoring.workflow import Workflow as Authored

Definition: TypeAlias = "Mapping[str, Any] | str | bytes | Authored[Any]"
"""A definition as a dict or JSON, or a workflow of Python."""


class RegisteredWorkflow(Struct, frozen=True):
    """A valid definition with all that is made from it."""

    definition: WorkflowDef
    digest: str
    workflow: Workflow
    schema: Schema | None


class CatalogInMemory:
    """Owned by a service in memory. As there, what was registered last under a name is its newest version."""

    def __init__(self) -> None:
        self._latest: dict[str, RegisteredWorkflow] = {}
        self._versions: dict[tuple[str, str], RegisteredWorkflow] = {}
        self._by_digest: dict[str, RegisteredWorkflow] = {}
        self._by_source: dict[bytes, RegisteredWorkflow] = {}
        self._schemas = Schemas()
        self._authored: WeakKeyDictionary[object, RegisteredWorkflow] = WeakKeyDictionary()

    def register(self, source: Definition) -> RegisteredWorkflow:
        """Register a definition, or a newer version of it. Raises Invalid with every problem."""
        if isinstance(source, str | bytes):
            return self._register_json(source.encode() if isinstance(source, str) else source)
        if isinstance(source, Mapping):
            return self._register_json(orjson.dumps(source))
        found = self._authored[source] = self._register_json(source.to_json())
        return found

    def find(self, source: Definition) -> RegisteredWorkflow:
        """The workflow to start: by its name, or registered now if it was not yet. Raises NotFound for a name that
        nothing was registered under, Invalid."""
        if isinstance(source, str) and not source.lstrip().startswith("{"):
            try:
                return self.latest(source)
            except NotFound as error:
                raise NotFound(f"{error}{_others(self._latest)}") from None
        if not isinstance(source, str | bytes | Mapping) and source in self._authored:
            return self._authored[source]
        return self.register(source)

    def newest(self) -> list[RegisteredWorkflow]:
        """The newest version of each workflow."""
        return list(self._latest.values())

    def latest(self, name: str) -> RegisteredWorkflow:
        """The newest version. Raises NotFound."""
        if (found := self._latest.get(name)) is None:
            raise NotFound(f"workflow {quoted(name)} is not registered")
        return found

    def version(self, name: str, version: str) -> RegisteredWorkflow:
        """Raises NotFound."""
        if (found := self._versions.get((name, version))) is None:
            raise NotFound(f"workflow {quoted(name)} has no version {quoted(version)}")
        return found

    def by_digest(self, key: str) -> RegisteredWorkflow:
        """The definition that a run uses. Raises KeyError."""
        return self._by_digest[key]

    def _register_json(self, source: bytes) -> RegisteredWorkflow:
        found = self._by_source.get(source) or self._parsed(source)
        name, version = found.definition.name, found.definition.version
        self._latest[name] = self._versions[name, version] = found
        self._by_digest[found.digest] = self._by_source[source] = found
        return found

    def _parsed(self, source: bytes) -> RegisteredWorkflow:
        try:
            document = orjson.loads(source)
        except orjson.JSONDecodeError as error:
            raise Invalid(f"the definition is no JSON: {error}") from error
        definition = parse(document)
        key = digest(to_json(definition))
        schema = self._schemas.of(definition, key)
        return RegisteredWorkflow(definition, key, compile_workflow(definition, key), schema)


def _others(known: Mapping[str, object]) -> str:
    return f": there is {', '.join(map(quoted, sorted(known)))}" if known else ": register it first"
