"""How long an evaluation may take at most, guessed from the size of what it reads: by counting, so everywhere alike."""

from __future__ import annotations

from msgspec import Struct

from penstock.config.limits import EXPRESSION_ITERATIONS_MAX, EXPRESSION_WORK_MAX, PATTERN_STATES_MAX
from penstock.engine.expressions.evaluation.functions import CALL_WORK
from penstock.engine.expressions.evaluation.patterns import states_of
from penstock.engine.expressions.evaluation.plan import value_path
from penstock.engine.expressions.evaluation.state import COPY_WORK, PATTERN_WORK, VALUE_WORK
from penstock.engine.expressions.evaluation.values import Path, Root, Values
from penstock.engine.expressions.syntax.tree import Call, Const, ListOf, Macro, Node, children

# Measured, with a margin: docs/adr/0020-expressions.md
DECODE_US_PER_BYTE = 0.015
NODE_US = 0.2
WORK_US = 0.002
HEAVY_US = 10_000


class Load(Struct, frozen=True):
    """What of an expression decides how long it takes: how deep its macros are nested, its nodes, the bytes and the
    longest list that it writes out, the work of its operators for each character of what it reads, and what that is."""

    depth: int
    nodes: int
    written: int
    longest_list: int
    work: int
    reads: frozenset[tuple[Root, Path]]

    @property
    def roots(self) -> frozenset[Root]:
        return frozenset(root for root, _ in self.reads)

    @classmethod
    def of(cls, node: Node, variables: frozenset[str] = frozenset()) -> Load:
        root, path = value_path(node, variables)
        if root is not None:
            return cls(0, 1 + len(path), 0, 0, 0, frozenset({(root, path)}))
        below = [cls.of(child, inner) for child, inner in _below(node, variables)]
        own_items = len(node.items) if isinstance(node, ListOf) else 0
        return cls(
            max((each.depth for each in below), default=0) + isinstance(node, Macro),
            sum(each.nodes for each in below) + _weight(node),
            sum(each.written for each in below) + _written(node),
            max((each.longest_list for each in below), default=0) + own_items,
            sum(each.work for each in below) + _work(node),
            frozenset().union(*(each.reads for each in below)),
        )

    def light_bytes(self) -> int:
        """Up to so many bytes of all that it reads, it is not heavy."""
        most = 1 << 24
        while most and self.microseconds(most) > HEAVY_US:
            most >>= 1
        return most if self.microseconds(0) <= HEAVY_US else -1

    def is_heavy(self, values: Values) -> bool:
        """Whether an evaluation over these values may take more than about 10 ms."""
        return self.microseconds(sum(values.size_at(root, path) for root, path in self.reads)) > HEAVY_US

    def microseconds(self, size: int) -> float:
        """What it takes at most when `size` bytes of JSON are read."""
        rounds: int = min((size // 2 + self.longest_list) ** self.depth, EXPRESSION_ITERATIONS_MAX)
        characters = size + self.written
        work = min(rounds * characters * self.work, EXPRESSION_WORK_MAX)
        return size * DECODE_US_PER_BYTE + rounds * self.nodes * NODE_US + work * WORK_US


def _below(node: Node, variables: frozenset[str]) -> list[tuple[Node, frozenset[str]]]:
    """The nodes below, each with the variables of the macros around it."""
    if not isinstance(node, Macro):
        return [(child, variables) for child in children(node)]
    inner = variables | {node.variable}
    asked = [(part, inner) for part in (node.condition, node.body) if part is not None]
    return [(node.over, variables), *asked]


def _written(node: Node) -> int:
    return len(node.value) if isinstance(node, Const) and isinstance(node.value, str | bytes) else 0


def _weight(node: Node) -> int:
    """How many plain nodes take as long as this one."""
    return 1 + CALL_WORK.get(node.function, 0) // VALUE_WORK if isinstance(node, Call) else 1


def _work(node: Node) -> int:
    """What an operator or a function may do for each character of its operands, at most."""
    match node:
        case Call(_, "matches", _, (*_, Const(_, str(pattern)))):
            return PATTERN_WORK * states_of(pattern)
        case Call(_, "matches"):
            return PATTERN_WORK * PATTERN_STATES_MAX
        case Call(_, "@in", _, (_, among)) if not _is_written(among):
            return VALUE_WORK // 2
        case Call(_, "_==_" | "_!=_" | "_+_", _, args) if not any(map(_is_written, args)):
            return VALUE_WORK // 2  # an element has at least two characters
        case Call(_, "string" | "bytes" | "_+_"):
            return COPY_WORK
        case Call(_, "contains"):
            return 1
        case Call(_, "_<_" | "_<=_" | "_>_" | "_>=_", _, args) if not any(map(_is_written, args)):
            return 1
        case _:
            return 0


def _is_written(node: Node) -> bool:
    """Whether it stands in the text, so that it is short."""
    return isinstance(node, Const) or (isinstance(node, ListOf) and all(map(_is_written, node.items)))
