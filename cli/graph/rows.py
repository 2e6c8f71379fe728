"""A graph as one line for each step, in the order of its layers, with a line down from each to those that depend on it:
as narrow as the number of steps whose dependents are still to come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.cli.graph.nodes import GraphNode, Nodes, dependents, layers, shortened

LABEL_CHARS_MIN = 16  # that are kept, however many lines there are
STEP, LAST = "●", "○"  # one with dependents, from which a line goes down, and one without


class Rails:
    """The columns of lines that are open: each is of a step that has dependents below."""

    def __init__(self, nodes: Nodes) -> None:
        self._left = {node_id: set(after) for node_id, after in dependents(nodes).items()}
        self._columns: list[str | None] = []

    def row(self, node: GraphNode) -> str:
        """The line of a step, without its label."""
        before = {self._columns.index(step_id): step_id for step_id in dict.fromkeys(node.depends_on)}
        for step_id in before.values():
            self._left[step_id].discard(node.id)
        ending = [at for at, step_id in before.items() if not self._left[step_id]]
        own = ending[0] if ending else self._free()
        text = self._drawn(own, STEP if self._left[node.id] else LAST, before, ending)
        for at in ending:
            self._columns[at] = None
        self._columns[own] = node.id if self._left[node.id] else None
        while self._columns and self._columns[-1] is None:
            self._columns.pop()
        return text

    def _free(self) -> int:
        """The first column without a line."""
        if None in self._columns:
            return self._columns.index(None)
        self._columns.append(None)
        return len(self._columns) - 1

    def _drawn(self, own: int, mark: str, before: Mapping[int, str], ending: Sequence[int]) -> str:
        first, last = min([own, *before]), max([own, *before])
        text = ""
        for at, step_id in enumerate(self._columns):
            inside = first <= at < last
            if at == own:
                text += mark
            elif at in before:
                text += _joint(at, first, last, at in ending)
            elif step_id is not None:
                text += "│"
            else:
                text += "─" if first < at < last else " "
            text += "─" if inside else " "
        return text.rstrip()


def drawn(nodes: Nodes, columns: int) -> list[str]:
    """One row for each node, its label behind all lines. Long labels are shortened for so many columns."""
    rails = Rails(nodes)
    found = [(rails.row(node), node.label) for layer in layers(nodes) for node in layer]
    width = max(len(row) for row, _ in found)
    most = max(LABEL_CHARS_MIN, columns - width - 1)
    return [f"{row.ljust(width)} {shortened(label, most)}" for row, label in found]


def _joint(at: int, first: int, last: int, ends: bool) -> str:
    if at == first:
        return "└" if ends else "├"
    if at == last:
        return "┘" if ends else "┤"
    return "┴" if ends else "┼"
