"""Steps as a graph: an edge goes from a step to each step that it depends on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from penstock.engine.definition.identifiers import shown

CIRCLE_SHOWN_MAX = 12

Edges = Mapping[str, Sequence[str]]


def circle_problems(edges: Edges) -> Iterator[str]:
    """One sentence per circle that a walk of the graph closes; none means that an order exists."""
    return (f"steps depend on each other in a circle: {_arrows(circle)}" for circle in circles(edges))


def circles(edges: Edges) -> Iterator[list[str]]:
    """Circles of two or more steps, each ending with the step it began with, at most one closed by each step.

    Every step that is part of a circle reaches one of those listed. Edges to steps that do not exist count for nothing.
    """
    seen: set[str] = set()
    for start in edges:
        if start not in seen:
            yield from _circles_from(start, edges, seen)


def _circles_from(start: str, edges: Edges, seen: set[str]) -> Iterator[list[str]]:
    # The path is the stack: no recursion, whatever the length of the chain. Values are the edges not yet walked.
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
