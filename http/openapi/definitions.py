"""Schemas of what hand-written forms check: definitions of workflows and triggers. Tests compare them with those forms.

Where a rule is more than a schema can say (steps that exist, cycles, durations that are too long), its description says
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any, TypeAlias

import orjson

from penstock.config.limits import LOOP_ITERATIONS_MAX, NAME_CHARS_MAX, RETRIES_MAX, STEPS_MAX
from penstock.engine.definition.durations import YEARS_MAX
from penstock.engine.definition.subjects import RESERVED, SUBJECT_CHARS_MAX
from penstock.engine.definition.values import VERSION_CHARS_MAX
from penstock.engine.trigger.trigger import SECRET_CHARS_MAX, Kind

Schema: TypeAlias = Mapping[str, Any]

_NUMBER = r"([0-9]+(\.[0-9]+)?|\.[0-9]+)"
_LENGTH = f"({_NUMBER}(ns|us|µs|\u03bcs|ms|s|m|h))+"
_WORD = r"[^\s.*>\x00-\x20\x7f]+"
_OWN = "|".join((r"\$.*", *sorted(RESERVED)))


def ref(name: str) -> Schema:
    """A reference to the component of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema, **more: object) -> Schema:
    return {"type": "array", "items": items, **more}


def one_of(*words: str, **more: object) -> Schema:
    return {"type": "string", "enum": list(words), **more}


def whole(least: int, most: int, **more: object) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def text(pattern: str, most: int, **more: object) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": most, "pattern": f"^{pattern}$", **more}


def _object(properties: Mapping[str, Schema], required: tuple[str, ...] = (), **more: object) -> Schema:
    """Null counts as absent: it may stand in every field that is not required."""
    fields = {name: schema if name in required else _or_null(schema) for name, schema in properties.items()}
    return {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False, **more}


def _or_null(schema: Schema) -> Schema:
    if not schema.keys() - {"description"}:
        return schema
    described = {key: value for key, value in schema.items() if key == "description"}
    return {
        "anyOf": [{key: value for key, value in schema.items() if key not in described}, {"type": "null"}],
        **described,
    }


def default_in_words(value: object) -> str:
    """What counts where a request leaves a field out, as its description says it."""
    return f"{orjson.dumps(value).decode()} without it."


def _given(*names: str) -> Schema:
    """Of an object: these fields are there."""
    return {"required": list(names), "properties": {name: {"not": {"type": "null"}} for name in names}}


def _none_given(names: Iterable[str]) -> Schema:
    return {"properties": {name: {"type": "null"} for name in names}}


def _exactly_one(*names: str) -> Schema:
    """Said by what is excluded: the fields keep their types in generated clients, which know nothing of `not`."""
    return {"not": {"anyOf": [_none_given(names), *(_given(*pair) for pair in combinations(names, 2))]}}


def _at_least_one(*names: str) -> Schema:
    return {"not": _none_given(names)}


def _duration(pattern: str, description: str) -> Schema:
    return {
        "description": description,
        "anyOf": [text(pattern, 100, examples=["30s"]), {"type": "integer", "minimum": 0}],
    }


STRING: Schema = {"type": "string"}
STRINGS: Schema = {"type": "object", "additionalProperties": STRING}

_STEP: Mapping[str, Schema] = {
    "id": ref("Name"),
    "task": ref("Name"),
    "depends_on": array(STRING, uniqueItems=True, maxItems=STEPS_MAX, description="Ids of steps that come before it."),
    "timeout": ref("Timeout"),
    "retry": ref("RetryPolicy"),
    "retries": whole(0, RETRIES_MAX, description="Short for so many retries, 5 s apart."),
    "skip_if": ref("SkipIf"),
    "metadata": STRINGS,
    "worker_group": ref("Name"),
}
_APPROVED = {key: _STEP[key] for key in ("id", "task", "depends_on", "timeout", "skip_if", "metadata")}

_TRIGGER: Mapping[str, Schema] = {
    "name": ref("Name"),
    "workflow": ref("Name"),
    "enabled": {"type": "boolean", "description": default_in_words(True)},
    "input": {"description": "The input of its runs; without one, it is what came."},
    "cron": _object(
        {
            "expression": STRING,
            "timezone": {"type": "string", "description": default_in_words("UTC"), "examples": ["Europe/Berlin"]},
        },
        ("expression",),
    ),
    "subject": _object({"subject": ref("Subject")}, ("subject",)),
    "event": ref("EventFilter"),
    "webhook": _object(
        {
            "secret": {
                "description": "True keeps the secret that there is.",
                "anyOf": [{"type": "string", "minLength": 1, "maxLength": SECRET_CHARS_MAX}, {"const": True}],
            }
        }
    ),
    "created_at": {"description": "Ignored, so that what GET answered may be given back."},
    "next_at": {"description": "Ignored, as created_at."},
}


def _trigger(required: tuple[str, ...], description: str) -> Schema:
    schema = _object(_TRIGGER, required, description=description, **_exactly_one(*Kind))
    return {**schema, "properties": {**schema["properties"], "name": _TRIGGER["name"]}}


DOCUMENTS: Mapping[str, Schema] = {
    "Name": text(
        r"[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]+)*",
        NAME_CHARS_MAX,
        description="Without leading, trailing or doubled dots.",
        examples=["greet"],
    ),
    "RunId": {"type": "string", "pattern": "^[0-9a-f]{32}$", "examples": ["01a1fbd4e22e73c2b60e9754e7b7a067"]},
    "Duration": _duration(
        _LENGTH, f"Text such as 500ms, 30s, 1h30m, or a count of nanoseconds; at most {YEARS_MAX} years."
    ),
    "Timeout": {
        "description": "A duration that is longer than nothing.",
        "anyOf": [text(f"(?=[^1-9]*[1-9]){_LENGTH}", 100, examples=["30s"]), {"type": "integer", "minimum": 1}],
    },
    "WorkflowDef": _object(
        {
            "name": ref("Name"),
            "version": text(r"[^\x00-\x1f\x7f-\x9f]+", VERSION_CHARS_MAX, description=default_in_words("1")),
            "steps": array(
                ref("Step"), minItems=1, maxItems=STEPS_MAX, description="Ids are unique; dependencies form no cycle."
            ),
            "timeout": ref("Timeout"),
            "default_retry": ref("RetryPolicy"),
            "input_schema": {
                "type": ["object", "boolean"],
                "description": "JSON Schema 2020-12, checked when a run starts.",
            },
            "description": STRING,
            "sticky": one_of("soft", "hard", description="Steps stay on the worker that completed the first one."),
            "$schema": {"description": "Ignored."},
        },
        ("name", "steps"),
        description="A workflow. A field that is null counts as absent.",
    ),
    "Step": {"anyOf": [ref("NormalStep"), ref("AgentLoopStep"), ref("ApprovalStep")]},
    "NormalStep": _object({**_STEP, "type": {"const": "normal"}}, ("id", "task"), description="A task for a worker."),
    "AgentLoopStep": _object(
        {**_STEP, "type": {"const": "agent_loop"}, "config": ref("LoopConfig"), "loop": ref("LoopConfig")},
        ("id", "task", "type"),
        **_exactly_one("config", "loop"),
        description="A task that is carried out again until its worker completes it; `loop` is another name for `config`.",
    ),
    "ApprovalStep": _object(
        {**_APPROVED, "type": {"const": "approval"}, "config": ref("ApprovalConfig")},
        ("id", "type"),
        description="A person's decision; no worker takes part.",
    ),
    "LoopConfig": _object(
        {
            "max_iterations": whole(1, LOOP_ITERATIONS_MAX),
            "max_duration": ref("Timeout"),
            "loop_delay": ref("Duration"),
        },
        **_at_least_one("max_iterations", "max_duration"),
    ),
    "ApprovalConfig": _object(
        {
            "timeout": {**ref("Timeout"), "description": "24h without one, 168h at most."},
            "subject": {**ref("LiteralSubject"), "description": "Where the request for an approval is published."},
            "description": STRING,
            "metadata": STRINGS,
        }
    ),
    "RetryPolicy": _object(
        {
            "max_attempts": whole(0, RETRIES_MAX, description="Retries after the first execution."),
            "strategy": one_of("fixed", "linear", "exponential", description=default_in_words("fixed")),
            "initial_delay": ref("Duration"),
            "max_delay": ref("Duration"),
            "multiplier": {"type": "number", "minimum": 1, "description": default_in_words(2)},
        },
        ("max_attempts",),
    ),
    "SkipIf": _object(
        {
            "step_id": {"type": "string", "description": "One of depends_on."},
            "field": ref("DotPath"),
            "op": one_of("==", "!=", "<", "<=", ">", ">="),
            "value": {"description": "Any JSON; null is a value, too."},
        },
        ("step_id", "field", "op", "value"),
    ),
    "DotPath": {
        "type": "string",
        "pattern": r"^[^.]+(\.[^.]+)*$",
        "description": "Names with single dots between them.",
    },
    "LiteralSubject": text(
        rf"(?!({_OWN})(\.|$)){_WORD}(\.{_WORD})*",
        SUBJECT_CHARS_MAX,
        description="A subject of the broker, none of the service's own.",
    ),
    "Subject": text(
        rf"(?!({_OWN})(\.|$)){_WORD}(\.({_WORD}|\*))*(\.>)?",
        SUBJECT_CHARS_MAX,
        description="A subject of the broker, none of the service's own; `*` and `>` may stand in it, but not at its beginning.",
        examples=["orders.*"],
    ),
    "EventFilter": _object(
        {
            "subject": {**ref("Subject"), "pattern": r"^event\."},
            "field": ref("DotPath"),
            "value": {"description": "Any JSON; null is a value, too."},
        },
        ("subject",),
        dependentSchemas={"value": _given("field")},
    ),
    "TriggerDocument": _trigger(
        ("name", "workflow"), "What starts runs: exactly one of cron, subject, event and webhook."
    ),
    "NamedTriggerDocument": _trigger(
        ("workflow",), "A trigger, whose name the path has; one that stands here must be the same."
    ),
}
