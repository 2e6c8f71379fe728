"""Schemas of workflow definitions and triggers, made from the forms that read them.

Where a rule is more than a schema can express (steps that exist, cycles, durations that are too long), its description
says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import structs

from penstock.engine.definition import values
from penstock.engine.definition.forms import Form, Rule
from penstock.engine.definition.labels import label_text, labels
from penstock.engine.trigger.trigger import TRIGGER
from penstock.engine.validation import WORKFLOW
from penstock.http.limits.forms import OVERRIDE
from penstock.http.messages import params

Schema: TypeAlias = Mapping[str, Any]

# By PUT the name is in the path; in the body it may be left out, but not null.
NAMED_TRIGGER = structs.replace(
    TRIGGER,
    component="NamedTriggerDocument",
    required=("workflow",),
    nullable=frozenset({"name"}),
    schema={
        **TRIGGER.schema,
        "description": "A trigger, whose name the path has; one that stands here must be the same.",
    },
)


def ref(name: str) -> Schema:
    """A reference to the component of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema, **more: object) -> Schema:
    return {"type": "array", "items": items, **more}


def one_of(*words: str, **more: object) -> Schema:
    return {"type": "string", "enum": list(words), **more}


def whole(least: int, most: int, **more: object) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def described(rule: Rule) -> Schema:
    """The schema of a rule, with references to the components in it."""
    schema: Schema = _described(rule, {})
    return schema


def components(*parts: Form | Rule) -> dict[str, Schema]:
    """The schemas of these and of everything that they contain, by the names of their components."""
    found: dict[str, Schema] = {}
    for part in parts:
        _described(part, found)
    return found


def _described(part: object, found: dict[str, Schema]) -> Any:
    """The schema for this part: a reference, if it is a component, which is then added to `found`."""
    match part:
        case Rule(component=None):
            return {**_described(part.schema, found), **part.keywords}
        case Rule(component=str(name)) | Form(component=str(name)):
            if name not in found:
                found[name] = {}  # known from here on
                found[name] = _object(part, found) if isinstance(part, Form) else _described(part.schema, found)
            return {**ref(name), **(part.keywords if isinstance(part, Rule) else {})}
        case Form():
            return _object(part, found)
        case Mapping():
            return {key: _described(value, found) for key, value in part.items()}
        case list():
            return [_described(value, found) for value in part]
        case _:
            return part


def _object(form: Form, found: dict[str, Schema]) -> Schema:
    """Null counts as absent: every field that is not required may be null."""
    never_null = {*form.required, *form.nullable}
    fields = {name: _described(rule, found) for name, rule in form.fields.items()}
    return {
        "type": "object",
        "properties": {
            **{name: schema if name in never_null else _or_null(schema) for name, schema in fields.items()},
            **{name: {"description": why} for name, why in form.ignored.items()},
        },
        "required": list(form.required),
        "additionalProperties": False,
        **form.schema,
    }


def _or_null(schema: Schema) -> Schema:
    if not schema.keys() - {"description"}:
        return schema
    described = {key: value for key, value in schema.items() if key == "description"}
    return {
        "anyOf": [{key: value for key, value in schema.items() if key not in described}, {"type": "null"}],
        **described,
    }


DOCUMENTS: Mapping[str, Schema] = {
    **components(values.name, params.run, labels, label_text, WORKFLOW, TRIGGER, NAMED_TRIGGER, OVERRIDE),
}
