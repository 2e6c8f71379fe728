"""A page of characters on which lines meet: corners and junctions follow from the directions that leave a place."""

from __future__ import annotations

from collections.abc import Iterator

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
LINES = {
    UP | DOWN: "│",
    LEFT | RIGHT: "─",
    UP | RIGHT: "└",
    UP | LEFT: "┘",
    DOWN | RIGHT: "┌",
    DOWN | LEFT: "┐",
    UP | DOWN | RIGHT: "├",
    UP | DOWN | LEFT: "┤",
    LEFT | RIGHT | DOWN: "┬",
    LEFT | RIGHT | UP: "┴",
    UP | DOWN | LEFT | RIGHT: "┼",
    UP: "│",
    DOWN: "│",
    LEFT: "─",
    RIGHT: "─",
}


class Canvas:
    """Places are column and row, from 0. Lines that only cross do not join: there, the upright one is drawn over the
    other."""

    def __init__(self) -> None:
        self._texts: dict[tuple[int, int], str] = {}
        self._lines: dict[tuple[int, int], int] = {}
        self._joints: set[tuple[int, int]] = set()

    def text(self, x: int, y: int, text: str) -> None:
        """Write over whatever is there."""
        self._texts.update(((x + at, y), character) for at, character in enumerate(text))

    def across(self, left: int, right: int, y: int) -> None:
        """A line from one column to another."""
        for x in range(left, right + 1):
            self._add(x, y, (LEFT if x > left else 0) | (RIGHT if x < right else 0))

    def upright(self, x: int, top: int, bottom: int) -> None:
        """A line from one row to another."""
        for y in range(top, bottom + 1):
            self._add(x, y, (UP if y > top else 0) | (DOWN if y < bottom else 0))

    def join(self, x: int, y: int, directions: int = 0) -> None:
        """Lines that meet here are one line, which also leaves in these directions."""
        self._add(x, y, directions)
        self._joints.add((x, y))

    def rows(self) -> Iterator[str]:
        """From the top, without spaces at the ends."""
        places = self._texts.keys() | self._lines.keys()
        for y in range(max((y for _, y in places), default=-1) + 1):
            width = max((x for x, row in places if row == y), default=-1) + 1
            yield "".join(self._at(x, y) for x in range(width)).rstrip()

    def _add(self, x: int, y: int, directions: int) -> None:
        self._lines[x, y] = self._lines.get((x, y), 0) | directions

    def _at(self, x: int, y: int) -> str:
        if (x, y) in self._texts:
            return self._texts[x, y]
        directions = self._lines.get((x, y), 0)
        if directions & (UP | DOWN) and directions & (LEFT | RIGHT) and (x, y) not in self._joints:
            return "│"
        return LINES.get(directions, " ")
