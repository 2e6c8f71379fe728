"""Steps as a graph: an edge leads from a step to each step that it depends on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from penstock.engine.definition.identifiers import shown

CIRCLE_SHOWN_MAX = 12

Edges = Mapping[str, Sequence[str]]


def circle_problems(edges: Edges) -> Iterator[str]:
    """One sentence for each cycle found by a depth-first search; empty when the steps can be ordered."""
    return (f"steps depend on each other in a circle: {_arrows(circle)}" for circle in circles(edges))


def circles(edges: Edges) -> Iterator[list[str]]:
    """Cycles of two or more steps. Each ends with the step that it begins with, and each step closes at most one.

    Every step that is part of a cycle reaches one of those returned. Edges to steps that do not exist are ignored.
    """
    seen: set[str] = set()
    for start in edges:
        if start not in seen:
            yield from _circles_from(start, edges, seen)


def _circles_from(start: str, edges: Edges, seen: set[str]) -> Iterator[list[str]]:
    # The path is the stack, so that a long chain needs no recursion. Values are the edges not yet followed.
    path: dict[str, Iterator[str]] = {start: iter(edges[start])}
    closed: set[str] = set()
    seen.add(start)
    while path:
        step = next(reversed(path))
        target = next(path[step], None)
        if target is None:
            del path[step]
        elif target in path and target != step and step not in closed:
            closed.add(step)
            yield _closing(path, target)
        elif target in edges and target not in seen:
            seen.add(target)
            path[target] = iter(edges[target])


def _closing(path: Mapping[str, object], target: str) -> list[str]:
    steps = list(path)
    return [*steps[steps.index(target) :], target]


def _arrows(circle: list[str]) -> str:
    if len(circle) > CIRCLE_SHOWN_MAX:
        left_out = len(circle) - CIRCLE_SHOWN_MAX
        circle = [*circle[: CIRCLE_SHOWN_MAX - 2], f"… {left_out} more …", *circle[-2:]]
    return " -> ".join(map(shown, circle))
