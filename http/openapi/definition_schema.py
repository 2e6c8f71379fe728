"""The JSON Schema of a workflow definition, as a document of its own, for editors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from penstock.engine.validation import WORKFLOW
from penstock.http.openapi.definitions import components

IN_OPENAPI = "#/components/schemas/"
HERE = "#/$defs/"


def definition_schema() -> dict[str, Any]:
    """A schema of JSON Schema 2020-12. It refuses what the form of a definition refuses; rules between fields of
    different steps (ids, dependencies, cycles) and the text of expressions are checked by validation only."""
    found = components(WORKFLOW)
    assert WORKFLOW.component is not None
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A workflow of penstock",
        "$ref": HERE + WORKFLOW.component,
        "$defs": {name: _moved(schema) for name, schema in found.items()},
    }


def to_json() -> bytes:
    """The schema as the service sends it."""
    return orjson.dumps(definition_schema())


def _moved(schema: Any) -> Any:
    """The same with its references to components leading to this document's definitions."""
    match schema:
        case Mapping():
            return {key: _moved(value) for key, value in schema.items()}
        case list() | tuple():
            return [_moved(value) for value in schema]
        case str():
            return HERE + schema.removeprefix(IN_OPENAPI) if schema.startswith(IN_OPENAPI) else schema
        case _:
            return schema
