"""The problems found in one document. Their number is bounded, so that the response to a hostile document stays
small."""

from __future__ import annotations

LISTED_MAX = 100


class Report:
    """Belongs to one validation. Stores the first 100 problems as text and counts the others."""

    __slots__ = ("_left_out", "_listed")

    def __init__(self) -> None:
        self._listed: list[str] = []
        self._left_out = 0

    def add(self, *problems: str) -> None:
        for problem in problems:
            if len(self._listed) < LISTED_MAX:
                self._listed.append(problem)
            else:
                self._left_out += 1

    def problems(self) -> list[str]:
        """The sentences in the order in which they were found; if some were left out, the last one gives their
        number."""
        return [*self._listed, f"… and {self._left_out} more"] if self._left_out else list(self._listed)
