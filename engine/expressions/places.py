"""The fields of a step that hold expressions or templates, and what each of them may name.

A kind of step lists its own beside those that every step has: they are checked when a definition is registered, and
compiled when it is loaded, all in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from penstock.engine.expressions.scope import Scope


class Place(Struct, frozen=True):
    """`path` leads to the field, with a dot for each object on the way: `config.duration`.

    `template`: the value is any JSON, with `${{ }}` in its strings. Else it is the text of one expression. `condition`:
    the expression's value is true or false. `names` are in scope beside `input`, `run` and `steps`. `later`: the
    kind evaluates it itself, not when the step begins. `secrets`: as `compile_template` takes it.
    """

    path: str
    template: bool = True
    condition: bool = False
    names: tuple[str, ...] = ()
    later: bool = False
    secrets: bool = False


IN_SCOPE = frozenset({"input", "run"})
FAILED_RUN = Scope(names=IN_SCOPE | {"default"})  # what these fields of a workflow's on_failure may name
OF_RUN = Scope(names=IN_SCOPE)  # what limits of runs may name
FAILURE_INPUT, FAILURE_LABELS = "on_failure.with", "on_failure.labels"

WHEN = Place("when", template=False, condition=True)
INPUT = Place("with", names=("default",))

LIMIT_PARTS = {"concurrency": ("key", "fair_by"), "rate_limit": ("key",)}

# What follows from the end of a step of any kind (engine/run/kinds/handler.py), by the field that says so.
HANDLERS = {field: Place(f"{field}.with", names=("default",), later=True) for field in ("on_failure", "compensate")}


def value_at(document: Mapping[str, Any], path: str) -> object:
    """What stands at that path; None where nothing does."""
    found: object = document
    for name in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(name)
    return found


def ancestors(step_id: str, dependencies: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """The ids of all steps that end before this one begins."""
    found: set[str] = set()
    ahead = list(dependencies.get(step_id, ()))
    while ahead:
        if (step := ahead.pop()) not in found:
            found.add(step)
            ahead += dependencies.get(step, ())
    found.discard(step_id)
    return frozenset(found)


def written(step: Mapping[str, Any], places: tuple[Place, ...]) -> Iterator[tuple[Place, object]]:
    """The places at which the step has something, with what it has there."""
    for place in places:
        if (value := value_at(step, place.path)) is not None:
            yield place, value


def written_limits(owner: Mapping[str, Any], names: tuple[str, ...] = ()) -> Iterator[tuple[Place, object]]:
    """The expressions in the limits of a step or of a workflow, each with its place: `concurrency[0].key`."""
    for field, parts in LIMIT_PARTS.items():
        entries = owner.get(field)
        for number, entry in enumerate(entries if isinstance(entries, list | tuple) else ()):
            for part in parts:
                if isinstance(entry, Mapping) and entry.get(part) is not None:
                    yield Place(f"{field}[{number}].{part}", template=False, names=names), entry[part]
    if isinstance(owner.get("priority"), str):
        yield Place("priority", template=False, names=names), owner["priority"]


def scope_of(place: Place, known: frozenset[str], before: frozenset[str]) -> Scope:
    """What the text at that place may name: `known` are all steps of the definition, `before` those that end before."""
    return Scope(names=IN_SCOPE.union(place.names), steps=before, other_steps=known - before)
