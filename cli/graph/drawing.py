"""Draws a graph of steps for a terminal: as boxes where they fit, else as one line for each step."""

from __future__ import annotations

from penstock.cli.graph import boxes, rows
from penstock.cli.graph.layout import arranged, boxes_needed, width
from penstock.cli.graph.nodes import Nodes, shortened

LABEL_CHARS_MIN, LABEL_CHARS_MAX = 8, 40  # in a box
BOXES_MAX = 200


def draw(nodes: Nodes, columns: int) -> list[str]:
    """The rows of the picture, which has at most so many columns wherever that can be.

    Boxes stand side by side in layers, from top to bottom. Where a layer is too wide, steps share a box that depend on
    the same ones, and on which the same ones depend; where that does not do, there are no boxes.
    """
    most = min(LABEL_CHARS_MAX, max(LABEL_CHARS_MIN, columns // 2))
    short = [node._replace(label=shortened(node.label, most)) for node in nodes]
    for together in (False, True):
        if (picture := _in_boxes(short, columns, together)) is not None:
            return picture
    return rows.drawn(nodes, columns)


def _in_boxes(nodes: Nodes, columns: int, together: bool) -> list[str] | None:
    """None where it is too wide, or too much."""
    if boxes_needed(nodes, together=together) > BOXES_MAX:
        return None
    found = arranged(nodes, together=together)
    return boxes.drawn(found) if width(found) <= columns else None
