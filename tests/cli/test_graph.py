"""Graphs in the terminal: pictures as they were looked at, and that every picture says what the graph is."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cli.graph import rows
from penstock.cli.graph.drawing import draw
from penstock.cli.graph.exports import dot, mermaid
from penstock.cli.graph.nodes import GraphNode, label, shortened

PICTURES = Path(__file__).with_name("graphs")
WIDE = 400
UP, DOWN, LEFT, RIGHT = (0, -1), (0, 1), (-1, 0), (1, 0)
TURNS = {
    "│": (UP, DOWN),
    "─": (LEFT, RIGHT),
    "└": (UP, RIGHT),
    "┘": (UP, LEFT),
    "┌": (DOWN, RIGHT),
    "┐": (DOWN, LEFT),
    "├": (UP, DOWN, RIGHT),
    "┤": (UP, DOWN, LEFT),
    "┬": (LEFT, RIGHT, DOWN),
    "┴": (LEFT, RIGHT, UP),
    "┼": (UP, DOWN, LEFT, RIGHT),
}
BACK = {UP: DOWN, DOWN: UP, LEFT: RIGHT, RIGHT: LEFT}


def node(node_id: str, *before: str, kind: str = "normal") -> GraphNode:
    return GraphNode(node_id, label(node_id, kind), before)


def fan(count: int) -> list[GraphNode]:
    many = [f"resize-{number}" for number in range(count)]
    return [node("list"), *(node(one, "list") for one in many), node("publish", *many, kind="approval")]


def thirty() -> list[GraphNode]:
    """Three chains that exchange something half way, one of which skips to the end."""
    found = [node("start")]
    for chain in "abc":
        for number in range(9):
            before = [f"{chain}{number - 1}"] if number else ["start"]
            if number == 4:
                before.append({"a": "b3", "b": "c3", "c": "a3"}[chain])
            found.append(node(f"{chain}{number}", *before, kind="sub_workflow" if number == 6 else "normal"))
    return [*found, node("collect", "a8", "b8", "c8", "a4"), node("notify", "collect", "start")]


def irregular() -> list[GraphNode]:
    """Thirty steps with long names, of which no two have the same neighbours."""
    random = Random(7)
    found: list[GraphNode] = []
    for number in range(30):
        before = random.sample([one.id for one in found[-12:]], min(len(found), random.choice((0, 1, 1, 2, 3))))
        found.append(node(f"transform-the-records-of-{number}", *before))
    return found


LONG = [
    node("a" * 128),
    node("check-" + "b" * 60 + "-1", "a" * 128),
    node("check-" + "b" * 60 + "-2", "a" * 128, kind="wait_for_event"),
]
SHOWN = {
    "one": ([node("only")], 80),
    "diamond": (
        [node("fetch"), node("left", "fetch", kind="map"), node("right", "fetch"), node("join", "left", "right")],
        80,
    ),
    "fan-out": (fan(4), 80),
    "wide-fan-out": (fan(25), 80),
    "thirty": (thirty(), 100),
    "thirty-narrow": (thirty(), 80),
    "irregular": (irregular(), 80),
    "long-names": (LONG, 80),
    "long-names-narrow": (LONG, 40),
    "long-edges": ([node("a"), node("b", "a"), node("c", "a", "b"), node("d", "a", "c"), node("e", "b", "d")], 80),
    "apart": ([node("a"), node("b", "a"), node("c"), node("d")], 80),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_graph_is_drawn_as_it_was_looked_at(name: str) -> None:
    nodes, columns = SHOWN[name]
    picture = draw(nodes, columns)
    assert (PICTURES / f"{name}.txt").read_text() == "\n".join(picture) + "\n"
    assert columns >= max(map(len, picture))


@st.composite
def graphs(draw_: st.DrawFn) -> list[GraphNode]:
    found: list[GraphNode] = []
    for number in range(draw_(st.integers(1, 14))):
        before = draw_(st.lists(st.sampled_from([one.id for one in found]), max_size=4, unique=True)) if found else []
        found.append(node(f"s{number}" + "-" * draw_(st.integers(0, 9)), *before))
    return found


@settings(max_examples=300, deadline=None)
@given(graphs(), st.sampled_from((30, 60, 90, WIDE)))
def test_whoever_follows_the_lines_of_a_picture_finds_the_graph(nodes: list[GraphNode], columns: int) -> None:
    picture = draw(nodes, columns)
    expected = {(before, one.id) for one in nodes for before in one.depends_on}
    if "┌" in picture[0]:
        assert expected == set(edges_of_boxes(picture))
        assert {one.id for one in nodes} == {text for texts in boxes(picture).values() for text in texts}
    else:
        assert expected == set(edges_of_rows(picture))


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_rows_say_the_same(nodes: list[GraphNode]) -> None:
    expected = {(before, one.id) for one in nodes for before in one.depends_on}
    assert expected == set(edges_of_rows(rows.drawn(nodes, WIDE)))


def test_a_thousand_steps_are_drawn_as_one_box_or_one_a_line() -> None:
    chain = [node("s0"), *(node(f"s{number}", f"s{number - 1}") for number in range(1, 1000))]
    assert [*(f"● s{number}" for number in range(999)), "○ s999"] == draw(chain, 80)
    crowd = draw(fan(998), 80)
    assert ("┌─ 998 steps ─┐", 1008) == (crowd[4].strip(), len(crowd))
    assert 80 >= max(map(len, crowd))
    skipping = [node("s0"), *(node(f"s{number}", f"s{number - 1}", "s0") for number in range(1, 1000))]
    assert 1000 == len(draw(skipping, 80))


def test_what_is_too_long_loses_its_middle() -> None:
    assert ("abc", "abcdef", "ab…ef") == tuple(
        shortened(text, 5 + (text == "abcdef")) for text in ("abc", "abcdef", "abcdxyzef")
    )


def test_mermaid_is_quoted() -> None:
    nodes = [GraphNode("end", 'end "#1" <b>&`\\'), node("b", "end", "end")]
    assert [
        "flowchart TD",
        '    n0["end #34;#35;1#34; #60;b#62;#38;#96;#92;"]',
        '    n1["b"]',
        "    n0 --> n1",
    ] == mermaid(nodes)


def test_dot_is_quoted() -> None:
    nodes = [GraphNode("node", 'node "a\\b"'), node("graph", "node")]
    assert [
        r'digraph "my \"graph\"" {',
        "    node [shape=box];",
        r'    n0 [label="node \"a\\b\""];',
        '    n1 [label="graph"];',
        "    n0 -> n1;",
        "}",
    ] == dot(nodes, 'my "graph"')


def boxes(picture: list[str]) -> dict[tuple[int, int, int], list[str]]:
    """The texts in each box, by its first and last column and its first row."""
    found = {}
    for y, row in enumerate(picture):
        for match in re.finditer(r"┌─( [0-9]+ steps )?─*┐", row):
            left, right = match.start(), match.end() - 1
            inside = []
            for line in picture[y + 1 :]:
                if line[left] != "│" or line[left + 1] != " ":
                    break
                inside.append(line[left + 1 : right].strip())
            bottom = picture[y + 1 + len(inside)]
            if inside and bottom[left] == "└" and line[right] in "┘":
                found[left, right, y] = inside
    return found


def edges_of_boxes(picture: list[str]) -> Iterator[tuple[str, str]]:
    found = boxes(picture)
    borders = {
        (x, y + len(texts) + 1): texts for (left, right, y), texts in found.items() for x in range(left + 1, right)
    }
    tops = {(x, y): texts for (left, right, y), texts in found.items() for x in range(left, right + 1)}
    for (x, y), sources in borders.items():
        if picture[y][x] == "┬":
            for at in arrows(picture, x, y + 1):
                for target in tops[at[0], at[1] + 1]:
                    yield from ((source, target) for source in sources)


def arrows(picture: list[str], x: int, y: int) -> set[tuple[int, int]]:
    """Where the lines end that begin here, downwards. One that is crossed goes straight on."""
    todo, seen, ends = deque([(x, y, DOWN)]), set[tuple[int, int, tuple[int, int]]](), set[tuple[int, int]]()
    while todo:
        x, y, direction = todo.popleft()
        if (x, y, direction) in seen:
            continue
        seen.add((x, y, direction))
        character = picture[y][x]
        if character == "▼":
            ends.add((x, y))
            continue
        if character == "│" and direction in (LEFT, RIGHT):
            onward = [direction]
        else:
            onward = [turn for turn in TURNS[character] if turn != BACK[direction]]
            assert BACK[direction] in TURNS[character], f"the line breaks at {x}, {y}"
        todo.extend((x + turn[0], y + turn[1], turn) for turn in onward if turn != UP)
    return ends


def edges_of_rows(picture: list[str]) -> Iterator[tuple[str, str]]:
    """Lines are followed from row to row, by their columns."""
    lines: dict[int, str] = {}
    for row in picture:
        rails, _, name = row.rpartition(" ")
        own = next(at for at, character in enumerate(rails) if character in "●○")
        ends = [at for at, character in enumerate(rails) if character in "├└┤┘┼┴"]
        yield from ((lines[at], name) for at in (*ends, *([own] if own in lines else [])))
        lines = {at: lines[at] for at, character in enumerate(rails) if character in "│├┤┼"}
        lines |= {own: name} if rails[own] == "●" else {}
