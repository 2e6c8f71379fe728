"""The JSON of a workflow, but for its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

import orjson

from penstock.authoring.options import FailureRun, WorkflowOptions, given, name_of
from penstock.authoring.steps import limits_document, retry_document
from penstock.authoring.templates import templated, text, time_span
from penstock.engine.definition.identifiers import json_type, quoted
from penstock.engine.errors import Invalid


def workflow_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a definition beside its name and its steps."""
    found = given(**options)
    if unknown := found.keys() - get_type_hints(WorkflowOptions).keys():
        raise Invalid(*(f"a workflow has no option {quoted(key)}" for key in sorted(unknown)))
    for key, value in found.items():
        match key:
            case "timeout":
                found[key] = time_span(value, key)
            case "default_retry":
                found[key] = retry_document(value, key)
            case "concurrency" | "rate_limit":
                found[key] = limits_document(value, key)
            case "priority":
                found[key] = text(value)
            case "on_failure":
                found[key] = _failure_run(value)
    return found


def _failure_run(value: Any) -> Any:
    if isinstance(value, FailureRun):
        return templated(value.document, "on_failure")
    return templated(value, "on_failure") if isinstance(value, Mapping) else {"workflow": name_of(value)}


def definition_document(definition: Mapping[str, Any] | bytes | str) -> dict[str, Any]:
    """A copy of the definition that nobody else changes."""
    try:
        body = definition if isinstance(definition, bytes | str) else orjson.dumps(dict(definition))
        found = orjson.loads(body)
    except (TypeError, ValueError) as error:
        raise Invalid(f"the definition is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Invalid(f"a workflow definition must be an object, not {json_type(found)}")
    return found
