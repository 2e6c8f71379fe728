"""What one evaluation has: the values it reads, the variables of macros, and how much it may still do.

All bounds are counts, so an evaluation ends in the same way on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from penstock.config.limits import EXPRESSION_ITERATIONS_MAX, EXPRESSION_WORK_MAX

# What counts how much against EXPRESSION_WORK_MAX, in characters that are looked at: about 1.5 ns each.
VALUE_WORK = 64  # a value that is computed, compared or copied
COPY_WORK = 8  # a character that is copied
PATTERN_WORK = 5  # a character, for each state of the regular expression that reads it


class EvaluationError(Exception):
    """The evaluation gives no value; the text says why. Absorbed by `||` and `&&` whose other side decides."""


class BoundExceeded(Exception):
    """The evaluation did as much as one may; the text names the bound. Nothing absorbs it."""


class Values:
    """The values that expressions of one step read; each is decoded from its JSON at most once, when it is read.

    `run`, `input` and whatever else is in scope stand under their names; `steps` is a mapping from step id to a mapping
    with `output` and `status`. A value is plain Python, or Raw with its JSON.
    """

    __slots__ = ("_decoded", "_names")

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._decoded: dict[str | tuple[str, str], Any] = {}

    def read(self, name: str) -> Any:
        value = self._names[name]
        return self._plain(name, value) if type(value) is Raw else value

    def read_step(self, step_id: str, part: str) -> Any:
        value = self._names["steps"][step_id][part]
        return self._plain((step_id, part), value) if type(value) is Raw else value

    def raw(self, name: str) -> Any:
        """The value as it was given: Raw, or plain Python."""
        return self._names[name]

    def raw_step(self, step_id: str, part: str) -> Any:
        return self._names["steps"][step_id][part]

    def _plain(self, key: str | tuple[str, str], value: Raw) -> Any:
        if key in self._decoded:
            return self._decoded[key]
        try:
            decoded = self._decoded[key] = msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError) as error:
            name = key if isinstance(key, str) else f"steps.{key[0]}.{key[1]}"
            raise EvaluationError(f"{name} cannot be read: {error}") from error
        return decoded


class Evaluation:
    """One evaluation of one expression; lives as long as it."""

    __slots__ = ("iterations", "values", "variables", "work")

    def __init__(self, values: Values, variables: int) -> None:
        self.values = values
        self.variables: list[Any] = [None] * variables
        self.iterations = EXPRESSION_ITERATIONS_MAX
        self.work = EXPRESSION_WORK_MAX

    def spend(self, work: int) -> None:
        """Count work before it is done; raises BoundExceeded when it is more than what is left."""
        self.work -= work
        if self.work < 0:
            raise BoundExceeded(
                f"it does too much: more than {EXPRESSION_WORK_MAX} units of work (a character looked at is 1, "
                f"one copied {COPY_WORK}, a value {VALUE_WORK})"
            )

    def iterate(self, count: int) -> None:
        """Count the elements that a macro goes through, before it does."""
        self.iterations -= count
        if self.iterations < 0:
            raise BoundExceeded(f"its macros go through more than {EXPRESSION_ITERATIONS_MAX} elements")
