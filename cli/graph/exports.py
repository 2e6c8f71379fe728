"""A graph in the languages of other tools: Mermaid, which pages of documentation render, and DOT, which Graphviz does.

Nodes get names of their own (n0, n1, …): a step's id may be a word of the language.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.cli.graph.nodes import Nodes

# What Mermaid reads in a quoted label: an entity begins with # or &, and markup with < or a backtick.
MERMAID = {character: f"#{ord(character)};" for character in '#&<>"`\\'}


def mermaid(nodes: Nodes) -> list[str]:
    """The lines of a flowchart."""
    names = _names(nodes)
    boxes = (f'    {names[node.id]}["{_escaped(node.label)}"]' for node in nodes)
    return ["flowchart TD", *boxes, *(f"    {before} --> {after}" for before, after in _edges(nodes, names))]


def dot(nodes: Nodes, title: str) -> list[str]:
    """The lines of a directed graph."""
    names = _names(nodes)
    boxes = (f"    {names[node.id]} [label={_quoted(node.label)}];" for node in nodes)
    edges = (f"    {before} -> {after};" for before, after in _edges(nodes, names))
    return [f"digraph {_quoted(title)} {{", "    node [shape=box];", *boxes, *edges, "}"]


def _names(nodes: Nodes) -> Mapping[str, str]:
    return {node.id: f"n{number}" for number, node in enumerate(nodes)}


def _edges(nodes: Nodes, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        for before in dict.fromkeys(node.depends_on):
            yield names[before], names[node.id]


def _escaped(text: str) -> str:
    return "".join(MERMAID.get(character, character) for character in text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
