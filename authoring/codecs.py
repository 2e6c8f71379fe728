"""Values of JSON as the types that a function names, and the JSON Schema of such types."""

from __future__ import annotations

import sys
from functools import cached_property
from typing import Any

import msgspec

from penstock.engine.errors import Invalid


class Codec:
    """Of one type: a dataclass, a msgspec.Struct, a TypedDict, a model of pydantic, or what is made of these."""

    def __init__(self, of: Any) -> None:
        self.type: Any = of

    def decode(self, value: Any) -> Any:
        """The JSON value as the type. Raises Invalid that names the field in which it is wrong."""
        if self.type in (Any, object):
            return value
        if self._adapter is not None:
            return self._validated(value)
        try:
            return msgspec.convert(value, self.type)
        except msgspec.ValidationError as error:
            raise Invalid(str(error)) from error

    def schema(self) -> dict[str, Any] | None:
        """Its JSON Schema; None for any value. Raises Invalid for a type that JSON has not."""
        if self.type in (Any, object):
            return None
        if self._adapter is not None:
            found: dict[str, Any] = self._adapter.json_schema()
            return found
        try:
            return msgspec.json.schema(self.type)
        except (TypeError, NameError) as error:
            raise Invalid(f"type {_shown(self.type)} has no JSON Schema: {error}") from error

    @cached_property
    def _adapter(self) -> Any:
        """What pydantic has for the type, if a model of it is in there: then pydantic was imported for it."""
        pydantic = sys.modules.get("pydantic")
        if pydantic is None or self.type in (Any, object) or not _has_model(self.type, pydantic.BaseModel):
            return None
        return pydantic.TypeAdapter(self.type)

    def _validated(self, value: Any) -> Any:
        try:
            return self._adapter.validate_python(value)
        except ValueError as error:
            raise Invalid(*_sentences(error)) from error


def _has_model(of: Any, model: type) -> bool:
    """Whether msgspec cannot know the type, because a part of it is a model."""
    if isinstance(of, type) and issubclass(of, model):
        return True
    try:
        msgspec.json.schema(of)
    except (TypeError, NameError):
        return True
    return False


def _sentences(error: Any) -> list[str]:
    """One sentence for each fault that pydantic has found, with its field."""
    return [f"{fault['msg']} - at `{_path(fault['loc'])}`" for fault in error.errors(include_url=False)]


def _path(parts: tuple[str | int, ...]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def _shown(of: Any) -> str:
    return of.__name__ if isinstance(of, type) else str(of)
