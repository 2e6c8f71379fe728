"""Rules for fields of requests beyond their types: one table reads a request, and describes it in the OpenAPI
document."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct

from penstock.engine.definition import forms, values
from penstock.engine.definition.forms import Rule
from penstock.engine.definition.http_requests import TASK as HTTP_TASK
from penstock.engine.definition.identifiers import quoted
from penstock.engine.definition.report import Report
from penstock.engine.errors import Invalid

# The rules of a struct's fields. Problems are reported in the order of the table.
Fields: TypeAlias = Mapping[str, Rule]

# Reserved task types that a worker of the service's own asks for, which may come over the bridge like any other.
BUILTIN_TASKS = frozenset({HTTP_TASK})

Instant = Annotated[datetime, Meta(tz=True)]


def instant(text: str) -> datetime | None:
    """A moment in RFC 3339, in UTC; None for text that is none."""
    try:
        return msgspec.convert(text, Instant).astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):
        return None


@forms.rule({"type": "string", "format": "date-time"})
def moment(path: str, value: object, report: Report) -> object:
    """A time in RFC 3339, as `created_at` is written."""
    assert isinstance(value, str)
    if (read := instant(value)) is None:
        report.add(f"{path} must be a time such as 2025-01-31T12:00:00Z, not {quoted(value)}")
        return None
    return read.isoformat(timespec="microseconds").replace("+00:00", "Z")


def task_types(most: int) -> Rule:
    """The rule of an array of 1 to `most` task types that a worker may ask for."""

    @forms.rule({"type": "array", "items": values.name, "minItems": 1, "maxItems": most})
    def read(path: str, value: object, report: Report) -> object:
        assert isinstance(value, list)
        _check_size(path, value, 1, most, report)
        for at, one in enumerate(value[:most]):
            (values.name if one in BUILTIN_TASKS else values.task_type).read(f"{path}[{at}]", one, report)
        return value

    return read


def entries(most: int, least: int = 0) -> Rule:
    """The rule of an array of at most `most` items; `least` is 0 or 1."""

    @forms.rule({"maxItems": most, **({"minItems": least} if least else {})})
    def read(path: str, value: object, report: Report) -> object:
        assert isinstance(value, list)
        _check_size(path, value, least, most, report)
        return value

    return read


def each(rule: Rule, most: int) -> Rule:
    """The rule of an array of 1 to `most` items, each by this rule."""

    @forms.rule({"items": rule, "minItems": 1, "maxItems": most})
    def read(path: str, value: object, report: Report) -> object:
        assert isinstance(value, list)
        _check_size(path, value, 1, most, report)
        return [rule.read(f"{path}[{number}]", one, report) for number, one in enumerate(value[:most])]

    return read


def characters(most: int) -> Rule:
    """The rule of a text of at most `most` characters."""

    @forms.rule({"maxLength": most})
    def read(path: str, value: object, report: Report) -> object:
        assert isinstance(value, str)
        if len(value) > most:
            report.add(f"{path} has {len(value)} characters, {most} is the most")
        return value

    return read


def digits(least: int, most: int) -> Rule:
    """The rule of a whole number that is written as text, in a query string or a header."""

    @forms.rule({"type": "integer", "minimum": least, "maximum": most})
    def read(path: str, value: object, report: Report) -> object:
        assert isinstance(value, str)
        if value.isascii() and value.isdigit() and len(value) <= len(str(most)) and least <= int(value) <= most:
            return int(value)
        report.add(f"{path} must be a whole number from {least} to {most}, not {quoted(value)}")
        return least

    return read


def read_fields(request: Struct, fields: Fields, report: Report) -> dict[str, Any]:
    """The values of those fields that are given, in their normal form. What is wrong with them goes to the report."""
    read: dict[str, Any] = {}
    for name, rule in fields.items():
        value = getattr(request, name)
        if value is not None and value is not UNSET:
            read[name] = rule.read(name, value, report)
    return read


def check_fields(request: Struct, fields: Fields) -> None:
    """Raise Invalid that names every field whose value breaks its rule."""
    report = Report()
    read_fields(request, fields, report)
    raise_problems(report)


def raise_problems(report: Report) -> None:
    """Raise Invalid with what the report has, if it has anything."""
    if problems := report.problems():
        raise Invalid(*problems)


def _check_size(path: str, value: list[Any], least: int, most: int, report: Report) -> None:
    if len(value) < least:
        report.add(f"{path} is empty")
    if len(value) > most:
        report.add(f"{path} has {len(value)} entries, {most} is the most")
