"""How long an evaluation may take at most, guessed from the size of what it reads: by counting, so everywhere alike."""

from __future__ import annotations

from msgspec import Struct

from penstock.config.limits import EXPRESSION_ITERATIONS_MAX, EXPRESSION_WORK_MAX
from penstock.engine.expressions.evaluation.state import PATTERN_WORK
from penstock.engine.expressions.syntax.tree import Call, ListOf, Macro, Node, children

# Measured, with a margin: docs/adr/0020-expressions.md
DECODE_US_PER_BYTE = 0.01
NODE_US = 0.15
WORK_US = 0.0015
HEAVY_US = 10_000
PATTERN_STATES = 64  # of a regular expression that is only known when it is used


class Load(Struct, frozen=True):
    """What of an expression decides how long it takes: how deep its macros are nested, its nodes, the longest list that
    it writes out, whether it has regular expressions."""

    depth: int
    nodes: int
    longest_list: int
    has_patterns: bool

    @classmethod
    def of(cls, node: Node) -> Load:
        below = [cls.of(child) for child in children(node)]
        own_list = len(node.items) if isinstance(node, ListOf) else 0
        is_pattern = isinstance(node, Call) and node.function == "matches"
        return Load(
            max((each.depth for each in below), default=0) + isinstance(node, Macro),
            sum(each.nodes for each in below) + 1,
            max((each.longest_list for each in below), default=0) + own_list,
            is_pattern or any(each.has_patterns for each in below),
        )

    def is_heavy(self, size: int) -> bool:
        """Whether an evaluation over `size` bytes of JSON may take more than about 10 ms."""
        elements = size // 2 + self.longest_list
        rounds: int = min(elements**self.depth, EXPRESSION_ITERATIONS_MAX)
        per_character = PATTERN_WORK * PATTERN_STATES if self.has_patterns else 1
        work = min(rounds * size * per_character, EXPRESSION_WORK_MAX)
        return size * DECODE_US_PER_BYTE + rounds * self.nodes * NODE_US + work * WORK_US > HEAVY_US
