"""What is drawn: steps with their labels, and an edge from each step to those that depend on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from typing import NamedTuple, TypeAlias


class GraphNode(NamedTuple):
    """A step: `label` is what is shown, `depends_on` are ids of nodes of the same graph, which has no circle."""

    id: str
    label: str
    depends_on: tuple[str, ...] = ()


Nodes: TypeAlias = Sequence[GraphNode]


def label(step_id: str, kind: str) -> str:
    """What a step of this kind is called in a graph; an ordinary step by its id alone."""
    return step_id if kind == "normal" else f"{step_id} · {kind}"


def layers(nodes: Nodes) -> list[list[GraphNode]]:
    """The nodes by the longest way to them from one without dependencies; in a layer in their own order."""
    by_id = {node.id: node for node in nodes}
    depth: dict[str, int] = {}
    for node_id in TopologicalSorter({node.id: node.depends_on for node in nodes}).static_order():
        depth[node_id] = 1 + max((depth[before] for before in by_id[node_id].depends_on), default=-1)
    found: list[list[GraphNode]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        found[depth[node.id]].append(node)
    return found


def dependents(nodes: Nodes) -> Mapping[str, tuple[str, ...]]:
    """The ids of the nodes that depend on each node, in their order."""
    found: dict[str, list[str]] = {node.id: [] for node in nodes}
    for node in nodes:
        for before in dict.fromkeys(node.depends_on):
            found[before].append(node.id)
    return {node_id: tuple(after) for node_id, after in found.items()}


def shortened(text: str, most: int) -> str:
    """`text` with at most so many characters. The middle is left out, because names differ at their ends more often."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"
