"""A law that does not hold."""

from __future__ import annotations


class Broken(AssertionError):
    """Something that must always hold does not; `run_id` is the run that shows it."""

    def __init__(self, law: str, run_id: str | None = None) -> None:
        super().__init__(law)
        self.law, self.run_id = law, run_id
