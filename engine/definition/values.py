"""The rules of single values in a definition or a trigger: how each is read, and its JSON Schema.

What a schema cannot express is in its description.
"""

from __future__ import annotations

import re
import sys

import orjson

from penstock.config.limits import APPROVAL_TIMEOUT_S_MAX, NAME_CHARS_MAX, PRIORITY_MAX, STEPS_MAX
from penstock.engine import times
from penstock.engine.definition import durations
from penstock.engine.definition.forms import Rule, rule
from penstock.engine.definition.identifiers import NAME_PATTERN, json_type, problem_with, problem_with_task, quoted
from penstock.engine.definition.report import Report
from penstock.engine.definition.subjects import LITERAL_PATTERN, SUBJECT_CHARS_MAX, problem_with_subject
from penstock.engine.errors import Invalid

VERSION_CHARS_MAX = 128

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LONGER_THAN_NOTHING = r"(?=[^1-9]*[1-9])"
_TIMEOUT = {
    "description": "A duration longer than 0s.",
    "anyOf": [
        {**durations.SCHEMA, "pattern": f"^{_LONGER_THAN_NOTHING}{durations.PATTERN}$"},
        {"type": "integer", "minimum": 1},
    ],
}


@rule(
    {
        "type": "string",
        "minLength": 1,
        "maxLength": NAME_CHARS_MAX,
        "pattern": f"^{NAME_PATTERN}$",
        "description": "Without leading, trailing or doubled dots.",
        "examples": ["greet"],
    },
    component="Name",
)
def name(path: str, value: object, report: Report) -> object:
    if problem := problem_with(path, value):
        report.add(problem)
    return value


@rule(
    {**name.schema, "not": {"pattern": "^penstock[.]"}, "examples": ["hello"]},  # type: ignore[dict-item]
    component="TaskType",
)
def task_type(path: str, value: object, report: Report) -> object:
    """The name of what workers do, none of the service's own."""
    if problem := problem_with_task(path, value):
        report.add(problem)
    return value


@rule({"type": "boolean"})
def boolean(path: str, value: object, report: Report) -> object:
    if not isinstance(value, bool):
        report.add(f"{path} must be true or false, not {json_type(value)}")
    return value


@rule({"type": "string"})
def text(path: str, value: object, report: Report) -> object:
    if not isinstance(value, str):
        report.add(f"{path} must be a string, not {json_type(value)}")
    return value


@rule(
    {"type": "string", "minLength": 1, "maxLength": VERSION_CHARS_MAX, "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$"},
)
def version(path: str, value: object, report: Report) -> object:
    if not isinstance(value, str):
        report.add(f"{path} must be a string, not {json_type(value)}")
    elif not value:
        report.add(f"{path} is empty")
    elif len(value) > VERSION_CHARS_MAX:
        report.add(f"{path} {quoted(value)} has {len(value)} characters, {VERSION_CHARS_MAX} is the most")
    elif _CONTROL.search(value):
        report.add(f"{path} {quoted(value)} holds control characters")
    return value


@rule(
    {"type": "string", "pattern": r"^[^.]+(\.[^.]+)*$", "description": "Names with single dots between them."},
    component="DotPath",
)
def dot_path(path: str, value: object, report: Report) -> object:
    if not isinstance(value, str):
        report.add(f"{path} must be a string, not {json_type(value)}")
    elif not all(value.split(".")):
        report.add(f"{path} {quoted(value)} must be names with single dots between them")
    return value


@rule(
    {"type": "string", "minLength": 1, "description": "An expression in the Common Expression Language."},
    component="Expression",
)
def expression(path: str, value: object, report: Report) -> object:
    """The text of an expression. What it says is checked later, when the whole graph is known."""
    if not isinstance(value, str):
        report.add(f"{path} must be the text of an expression, not {json_type(value)}")
    return value


@rule({})
def anything(path: str, value: object, report: Report) -> object:
    return value


def is_template(value: object) -> bool:
    """Whether the value is text with an expression in it."""
    return isinstance(value, str) and "${{" in value


def template(of: Rule) -> Rule:
    """Reads what `of` reads, or text with `${{ expression }}` that gives it when the step begins."""

    @rule({"anyOf": [of, {"type": "string", "pattern": r"\$\{\{"}]})
    def read(path: str, value: object, report: Report) -> object:
        return value if is_template(value) else of.read(path, value, report)

    return read


@rule({"type": "string", "format": "date-time"}, component="Instant")
def instant(path: str, value: object, report: Report) -> object:
    """An RFC 3339 time."""
    try:
        if isinstance(value, str):
            times.instant(value)
            return value
    except ValueError:
        pass
    report.add(f"{path} must be an RFC 3339 time such as 2030-01-31T08:00:00Z, not {described(value)}")
    return value


def one_of(*words: str) -> Rule:
    @rule({"type": "string", "enum": list(words)})
    def read(path: str, value: object, report: Report) -> object:
        if value not in words:
            report.add(f"{path} must be one of {' '.join(words)}, not {described(value)}")
        return value

    return read


@rule({"anyOf": [{"type": "integer", "minimum": -PRIORITY_MAX, "maximum": PRIORITY_MAX}, expression]})
def priority(path: str, value: object, report: Report) -> object:
    """A number, or the text of an expression that gives one."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= PRIORITY_MAX
    if not is_number and not isinstance(value, str):
        numbers = f"a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}"
        report.add(f"{path} must be {numbers} or the text of an expression, not {described(value)}")
    return value


def whole_number(most: int, least: int = 0) -> Rule:
    """Reads an integer from `least` to `most`; true and 1.0 are refused."""

    @rule({"type": "integer", "minimum": least, "maximum": most})
    def read(path: str, value: object, report: Report) -> object:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            report.add(f"{path} must be a whole number from {least} to {most}, not {described(value)}")
        return value

    return read


@rule({"type": "number", "minimum": 1})
def multiplier(path: str, value: object, report: Report) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= sys.float_info.max:
        report.add(f"{path} must be a number of at least 1, not {described(value)}")
    return value


@rule(
    {
        "description": "Text such as 500ms, 30s, 1h30m, or a count of nanoseconds; "
        f"at most {durations.YEARS_MAX} years.",
        "anyOf": [{**durations.SCHEMA, "pattern": f"^{durations.PATTERN}$"}, {"type": "integer", "minimum": 0}],
    },
    component="Duration",
)
def delay(path: str, value: object, report: Report) -> object:
    """A duration, as normalised text."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        report.add(f"{path} must be a duration such as 30s, not {described(value)}")
        return value
    try:
        return durations.text(durations.parse(value))
    except ValueError as error:
        report.add(f"{path} {error}")
        return value


@rule(_TIMEOUT, component="Timeout")
def timeout(path: str, value: object, report: Report) -> object:
    """A duration greater than zero, as normalised text."""
    read = delay.read(path, value, report)
    if read == "0s":
        report.add(f"{path} must be longer than 0s")
    return read


@rule(_TIMEOUT, component="Timeout")
def approval_timeout(path: str, value: object, report: Report) -> object:
    """The duration of an approval, as normalised text."""
    read = timeout.read(path, value, report)
    if isinstance(read, str) and _seconds(read) > APPROVAL_TIMEOUT_S_MAX:
        report.add(f"{path} {quoted(read)} is too long, {durations.text(APPROVAL_TIMEOUT_S_MAX)} is the most")
    return read


@rule(
    {
        "type": "string",
        "minLength": 1,
        "maxLength": SUBJECT_CHARS_MAX,
        "pattern": f"^{LITERAL_PATTERN}$",
        "description": "A subject of the broker, none of the service's own.",
    },
    component="LiteralSubject",
)
def subject(path: str, value: object, report: Report) -> object:
    """A subject to publish to that does not belong to the service."""
    if problem := problem_with_subject(path, value):
        report.add(problem)
    return value


def _seconds(text: str) -> float:
    try:
        return durations.parse(text)
    except ValueError:
        return 0.0


@rule({"type": "array", "items": name, "uniqueItems": True, "maxItems": STEPS_MAX})
def names(path: str, value: object, report: Report) -> object:
    """An array of names, each once."""
    if not isinstance(value, list):
        report.add(f"{path} must be an array, not {json_type(value)}")
        return []
    if len(value) > STEPS_MAX:
        report.add(f"{path} has {len(value)} entries, {STEPS_MAX} is the most")
        return []
    return list(dict.fromkeys(str(name.read(f"{path}[{n}]", one, report)) for n, one in enumerate(value)))


@rule({"type": "object", "additionalProperties": {"type": "string"}})
def strings(path: str, value: object, report: Report) -> object:
    """An object whose values are strings."""
    if not isinstance(value, dict):
        report.add(f"{path} must be an object, not {json_type(value)}")
        return value
    report.add(
        *(
            f"{path} {quoted(key)} must be a string, not {json_type(item)}"
            for key, item in value.items()
            if not isinstance(item, str)
        )
    )
    return value


@rule({"type": ["object", "boolean"]})
def json_schema(path: str, value: object, report: Report) -> object:
    try:
        from penstock.engine.definition.schema import (
            Schema,  # imported here: a worker reads definitions without the validator
        )

        Schema(orjson.dumps(value))
    except Invalid as invalid:
        report.add(*invalid.problems)
    return value


def described(value: object) -> str:
    """A scalar as it is written in JSON, any other value by its type."""
    if isinstance(value, str):
        return quoted(value)
    if type(value) is int:  # of any size, unlike what orjson writes
        return str(value)
    return orjson.dumps(value).decode() if isinstance(value, int | float) else json_type(value)
