"""Which names an expression may read, and which it does read."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct


class Scope(Struct, frozen=True, kw_only=True):
    """The names that are declared where an expression stands.

    `names` are read whole (`input`, `run`, `event`, `item`, …). `steps` are the step ids that `steps.<id>` may name:
    the transitive dependencies; None where there are no steps at all. `other_steps` exist, but are no dependencies.
    """

    names: frozenset[str]
    steps: frozenset[str] | None = None
    other_steps: frozenset[str] = frozenset()

    def with_names(self, *names: str) -> Scope:
        """This scope, and these names beside it (`item`, `index`, `default`)."""
        return Scope(names=self.names.union(names), steps=self.steps, other_steps=self.other_steps)

    def declared(self) -> frozenset[str]:
        return self.names if self.steps is None else self.names | {"steps"}


class References(Struct, frozen=True):
    """What an expression or a template reads: whole names, and ids of steps whose output or status it reads."""

    names: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()
    statuses: frozenset[str] = frozenset()


def all_references(parts: Iterable[References]) -> References:
    """What any of the parts reads."""
    each = list(parts)
    if len(each) == 1:  # of most steps; it is asked each time one begins
        return each[0]
    return References(
        frozenset().union(*(part.names for part in each)),
        frozenset().union(*(part.outputs for part in each)),
        frozenset().union(*(part.statuses for part in each)),
    )
