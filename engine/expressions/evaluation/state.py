"""What one evaluation has: the values it reads, the variables of its macros, and how much it may still do.

All bounds are counts, so an evaluation ends in the same way on every machine.
"""

from __future__ import annotations

from typing import Any

from penstock.config.limits import EXPRESSION_ITERATIONS_MAX, EXPRESSION_WORK_MAX
from penstock.engine.expressions.evaluation.failures import BoundExceeded
from penstock.engine.expressions.evaluation.values import Values

# What counts how much against EXPRESSION_WORK_MAX, in characters that are looked at: about 1.5 ns each.
VALUE_WORK = 64  # a value that is computed, compared or copied
COPY_WORK = 8  # a character that is copied
PATTERN_WORK = 5  # a character, for each state of the regular expression that reads it


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
