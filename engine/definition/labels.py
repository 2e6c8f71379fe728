"""Labels of runs: what they may be, and their text `key:value`, by which runs are found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from penstock.config.limits import LABEL_VALUE_CHARS_MAX, RUN_LABELS_MAX
from penstock.engine.definition import values
from penstock.engine.definition.forms import rule
from penstock.engine.definition.identifiers import json_type, problem_with, quoted
from penstock.engine.definition.report import Report

SCHEMA = {"type": "object", "maxProperties": RUN_LABELS_MAX, "propertyNames": values.name}


def is_label(key: str, value: str) -> bool:
    return len(value) <= LABEL_VALUE_CHARS_MAX and problem_with("", key) is None


def problems(path: str, labels: Mapping[str, object]) -> Iterator[str]:
    """What is wrong with the labels at `path`, each problem with the key."""
    yield from key_problems(path, labels)
    for key, value in labels.items():
        yield from value_problems(f"{path} {quoted(key)}", value)


def value_problems(place: str, value: object) -> Iterator[str]:
    """What is wrong with the value of a label."""
    if not isinstance(value, str):
        yield f"{place} must be a string, not {json_type(value)}"
    elif len(value) > LABEL_VALUE_CHARS_MAX:
        yield f"{place} has {len(value)} characters, {LABEL_VALUE_CHARS_MAX} is the most"


def key_problems(path: str, labels: Mapping[str, object]) -> Iterator[str]:
    """What is wrong with the number of labels at `path`, and with their keys."""
    if len(labels) > RUN_LABELS_MAX:
        yield f"{path} has {len(labels)} entries, {RUN_LABELS_MAX} is the most"
    for key in labels:
        if problem := problem_with(f"{path}: key", key):
            yield problem


@rule(
    {**SCHEMA, "additionalProperties": {"type": "string", "maxLength": LABEL_VALUE_CHARS_MAX}},
    component="Labels",
)
def labels(path: str, value: object, report: Report) -> object:
    """Texts by names."""
    if not isinstance(value, dict):
        report.add(f"{path} must be an object, not {json_type(value)}")
        return {}
    report.add(*problems(path, value))
    return value


@rule({"type": "array", "items": {"anyOf": [labels, {"type": "null"}]}})
def labels_of_each(path: str, value: object, report: Report) -> object:
    """An array with labels or null for each of several runs."""
    if not isinstance(value, list):
        report.add(f"{path} must be an array, not {json_type(value)}")
        return []
    for number, one in enumerate(value):
        if one is not None:
            labels.read(f"{path}[{number}]", one, report)
    return value


@rule({**SCHEMA, "additionalProperties": {"type": "string"}}, component="LabelTemplates")
def label_templates(path: str, value: object, report: Report) -> object:
    """Texts by names, with `${{ expression }}`; the expressions are checked elsewhere."""
    if not isinstance(value, dict):
        report.add(f"{path} must be an object, not {json_type(value)}")
        return {}
    report.add(*key_problems(path, value))
    for key, text in value.items():
        if not values.is_template(text):
            report.add(*value_problems(f"{path} {quoted(key)}", text))
    return value


def label_of(value: Any) -> str:
    """What a template has given, as the value of a label: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


@rule(
    {
        "type": "string",
        "maxLength": LABEL_VALUE_CHARS_MAX + 129,
        "pattern": "^[^:]+:",
        "description": "`key:value`; the first colon ends the key.",
        "examples": ["team:payments"],
    },
    component="LabelText",
)
def label_text(path: str, value: object, report: Report) -> object:
    """A label as one text."""
    assert isinstance(value, str)
    key, colon, rest = value.partition(":")
    if not colon:
        report.add(f"{path} {quoted(value)} must be key:value")
    else:
        report.add(*problems(path, {key: rest}))
    return value
