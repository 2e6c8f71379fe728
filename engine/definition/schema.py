"""A workflow's `input_schema` (JSON Schema 2020-12), compiled, and the problems it finds in an input.

Nothing is fetched: a reference to another document is refused when the schema is compiled.
"""

from __future__ import annotations

import re

import orjson
from jsonschema_rs import Draft202012Validator, FancyRegexOptions, ValidationError
from msgspec import Raw, UnsetType

from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.definition.identifiers import quoted, shown
from penstock.engine.errors import Invalid

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PROBLEMS_MAX = 10
SCHEMAS_MAX = 100
MESSAGE_MAX = 300
SCHEMA_BYTES_MAX = 256 * 1024
# The validator builds all errors before it shows the first (13 µs each): a large value gets its first one only.
LISTED_BYTES_MAX = 16 * 1024
# For each string: a pattern such as (a|a)*b must not delay other requests.
BACKTRACK_MAX = 10_000

_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")


class Schema:
    """One compiled, immutable schema. It lives as long as the definition that it belongs to."""

    __slots__ = ("_validator",)

    def __init__(self, schema: Raw | bytes) -> None:
        """Raises Invalid if `schema` cannot be compiled; each problem begins with `input_schema`."""
        self._validator = _compiled(bytes(schema))

    def check(self, value_json: bytes, name: str) -> list[str]:
        """At most 10 problems of a value that the user calls `name` (`input`, `input[3]`); empty when it is valid."""
        try:
            value = orjson.loads(value_json)
            return _problems(self._validator, value, len(value_json), name)
        except ValueError as error:  # not JSON, or nested deeper than the validator goes
            return [f"{name}: {shown(str(error), MESSAGE_MAX)}"]


class Schemas:
    """The compiled schemas of definitions that inputs are checked against again and again, by digest."""

    def __init__(self) -> None:
        self._schemas: dict[str, Schema] = {}

    def of(self, definition: WorkflowDef, digest: str) -> Schema | None:
        """None: the definition has no `input_schema`."""
        if isinstance(definition.input_schema, UnsetType):
            return None
        if digest not in self._schemas:
            if len(self._schemas) >= SCHEMAS_MAX:
                self._schemas.clear()
            self._schemas[digest] = Schema(definition.input_schema)
        return self._schemas[digest]


def _compiled(schema: bytes) -> Draft202012Validator:
    if len(schema) > SCHEMA_BYTES_MAX:
        raise Invalid(f"input_schema has {len(schema)} bytes, {SCHEMA_BYTES_MAX} is the most")
    try:
        document = orjson.loads(schema)
        if found := _problems(_META, document, len(schema), "input_schema") or _dialect_problems(document):
            raise Invalid(*found)
        return _validator(document)
    except ValidationError as error:
        raise Invalid(_sentence(error, "input_schema")) from error
    except ValueError as error:
        raise Invalid(f"input_schema: {shown(str(error), MESSAGE_MAX)}") from error


def _dialect_problems(document: bool | dict[str, object]) -> list[str]:
    dialect = document.get("$schema", DIALECT) if isinstance(document, dict) else DIALECT
    assert isinstance(dialect, str), "the meta-schema says so"
    known = dialect.removesuffix("#") == DIALECT
    return [] if known else [f"input_schema: $schema {quoted(dialect)} is not supported ({DIALECT} is)"]


def _problems(validator: Draft202012Validator, value: object, size: int, name: str) -> list[str]:
    if validator.is_valid(value):
        return []
    if size > LISTED_BYTES_MAX:
        return [_first_problem(validator, value, name)]
    # Each once: the meta-schema reports the same problem for several of its vocabularies.
    return list(dict.fromkeys(_sentence(error, name) for error in validator.iter_errors(value)))[:PROBLEMS_MAX]


def _first_problem(validator: Draft202012Validator, value: object, name: str) -> str:
    try:
        validator.validate(value)
    except ValidationError as error:
        return _sentence(error, name)
    raise AssertionError("a value is valid or has a first problem")


def _sentence(error: ValidationError, name: str) -> str:
    place = name + "".join(map(_step_into, error.instance_path))
    return f"{shown(place, MESSAGE_MAX)}: {shown(error.message, MESSAGE_MAX)}"


def _step_into(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{quoted(key)}]"


def _validator(document: bool | dict[str, object]) -> Draft202012Validator:
    return Draft202012Validator(
        document, offline=True, pattern_options=FancyRegexOptions(backtrack_limit=BACKTRACK_MAX)
    )


_META = _validator({"$ref": DIALECT})
