"""Values with expressions in them, as a definition's JSON has them: `${{ expression }}` in strings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from penstock.authoring.expressions import Expr, StandsFor, template_of
from penstock.authoring.literals import number_text
from penstock.engine.definition import durations
from penstock.engine.errors import Invalid


def templated(value: Any, place: str) -> Any:
    """The value as JSON; what stands for a value of the run becomes a template. Strings stay as they are, so a
    template may stand in them. Raises Invalid with the place of what cannot be JSON."""
    match value:
        case Expr():
            return template_of(value)
        case StandsFor():
            return template_of(value.__expression__())
        case None | bool() | str():
            return value
        case int() | float():
            return _number(value, place)
        case Mapping():
            return {_key(key, place): templated(each, f"{place}.{key}") for key, each in value.items()}
        case list() | tuple():
            return [templated(each, f"{place}[{number}]") for number, each in enumerate(value)]
    return templated(_plain(value, place), place)


def condition(value: Any) -> Any:
    """The text of an expression; text stays as it is."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else text(value)


def text(value: Any) -> Any:
    """The text of an expression, for what stands for a value; anything else as it is."""
    match value:
        case Expr():
            return template_of(value)[4:-3]
        case StandsFor():
            return template_of(value.__expression__())[4:-3]
    return value


def time_span(value: Any, place: str) -> Any:
    """A duration as its text; what stands for a value becomes a template."""
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise Invalid(f"{place}: {value} is negative")
        return durations.text(value.total_seconds())
    return templated(value, place)


def _number(value: float, place: str) -> float:
    if isinstance(value, float):
        try:
            number_text(value)
        except Invalid as error:
            raise Invalid(f"{place}: {error}") from error
    return value


def _key(key: object, place: str) -> str:
    if not isinstance(key, str):
        raise Invalid(f"{place}: {key!r} is no key of an object: keys are strings, and hold no expressions")
    return key


def _plain(value: Any, place: str) -> Any:
    """The parts of an object that Python has as a class of its own."""
    if isinstance(value, msgspec.Struct):
        fields = {field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(type(value))}
        config = value.__struct_config__
        return fields if config.tag_field is None else {config.tag_field: config.tag, **fields}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(type(value), "__pydantic_fields__"):
        return {field.alias or name: getattr(value, name) for name, field in type(value).__pydantic_fields__.items()}
    try:
        return msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview), str_keys=True)
    except (TypeError, msgspec.ValidationError) as error:
        raise Invalid(f"{place}: {value!r} cannot be written as JSON") from error
