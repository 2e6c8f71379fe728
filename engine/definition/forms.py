"""Forms: what an object that a user writes may hold, as tables.

The same table reads the object and describes it as JSON Schema, so each rule is written once for validation and for the
API's document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any, TypeAlias

import orjson
from msgspec import Struct, structs

from penstock.engine.definition.identifiers import json_type, quoted
from penstock.engine.definition.report import Report

Document: TypeAlias = dict[str, object]
# JSON Schema. A Rule or a Form may stand in it wherever a schema may.
Schema: TypeAlias = Mapping[str, Any]
Check: TypeAlias = Callable[[Document], Iterator[str]]
# `read(path, value, report)` returns the value to keep, in its normal form. A broken rule goes to the report, as a
# sentence that begins with `path`; then the returned value is good only for finding further problems.
Read: TypeAlias = Callable[[str, object, Report], object]


class Rule(Struct, frozen=True):
    """How one value is read, and its JSON Schema.

    `component` is the name of the schema in the API's document; `keywords` are written beside the reference to it.
    """

    read: Read
    schema: Schema | Form = {}
    component: str | None = None
    keywords: Schema = {}

    def annotated(self, **keywords: object) -> Rule:
        """Return the same rule with further keywords of JSON Schema, such as `description`."""
        return structs.replace(self, keywords={**self.keywords, **keywords})


class Form(Struct, frozen=True):
    """What an object may hold. A field that is null counts as absent, except for those in `nullable`.

    `elsewhere` has fields of other kinds of this object: each is a problem with a message of its own. `ignored` has
    fields that are accepted and dropped, each with the reason. `also` finds problems between fields; `schema` describes
    them as far as JSON Schema can.
    """

    fields: Mapping[str, Rule]
    required: tuple[str, ...] = ()
    elsewhere: frozenset[str] = frozenset()
    ignored: Mapping[str, str] = {}
    nullable: frozenset[str] = frozenset()
    also: Check | None = None
    component: str | None = None
    schema: Schema = {}


def rule(schema: Schema, component: str | None = None) -> Callable[[Read], Rule]:
    """Make a Rule of the function below it."""
    return lambda read: Rule(read, schema, component)


def nested(form: Form) -> Rule:
    """Return the rule of a field that holds an object."""
    return Rule(lambda path, value, report: read_object(form, f"{path}: ", value, report), form)


def read_object(form: Form, prefix: str, value: object, report: Report) -> Document:
    """Read the fields that `value` has. Every problem begins with `prefix` (`step "b": `)."""
    if not isinstance(value, dict):
        report.add(f"{prefix}an object is needed, not {json_type(value)}")
        return {}
    report.add(*_unknown(form, prefix, value))
    report.add(*(f"{prefix}{key} is missing" for key in form.required if not _given(form, key, value)))
    if form.also is not None:
        report.add(*(prefix + problem for problem in form.also(value)))
    present = {key: field for key, field in form.fields.items() if _given(form, key, value)}
    return {key: field.read(prefix + key, value[key], report) for key, field in present.items()}


def _given(form: Form, key: str, value: Document) -> bool:
    return key in value if key in form.nullable else value.get(key) is not None


def _unknown(form: Form, prefix: str, value: Document) -> Iterator[str]:
    known = form.fields.keys() | form.elsewhere | form.ignored.keys()
    for key in value:
        if key in form.elsewhere and value[key] not in (None, {}):
            yield f"{prefix}{key} is not for a step of this type{_place(form, key)}"
        elif key not in known:
            yield f"{prefix}unknown field {quoted(key)}{_place(form, key)}"


def _place(form: Form, key: str) -> str:
    """Where the field would be right, if it is one of the form's `config`."""
    config = form.fields.get("config")
    inside = config is not None and isinstance(config.schema, Form) and key in config.schema.fields
    return ": it belongs into config" if inside else ""


def default_in_words(value: object) -> str:
    """The sentence in a field's description that says which value is used when a request omits the field."""
    return f"{orjson.dumps(value).decode()} without it."


def given(*names: str) -> Schema:
    """A schema: these fields of the object are present and not null."""
    return {"required": list(names), "properties": {name: {"not": {"type": "null"}} for name in names}}


def exactly_one(*names: str) -> Schema:
    """A schema: exactly one of the fields is present.

    It is written as exclusions (`not`), which generators of clients ignore: so their fields keep their types.
    """
    return {"not": {"anyOf": [_none_given(names), *(given(*pair) for pair in combinations(names, 2))]}}


def at_least_one(*names: str) -> Schema:
    return {"not": _none_given(names)}


def _none_given(names: Iterable[str]) -> Schema:
    return {"properties": {name: {"type": "null"} for name in names}}
