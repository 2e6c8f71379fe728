"""The names, functions and macros of a tree: what it reads, and what it may not.

`steps` is rewritten on the way: `steps.<id>.output` becomes one node, so that nothing else can be done with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.engine.definition.identifiers import quoted
from penstock.engine.expressions.scope import References, Scope
from penstock.engine.expressions.syntax.tree import Call, Macro, MessageOf, NameRead, Node, Select, children
from penstock.engine.expressions.syntax.tree import Const as Constant

MACROS_NESTED_MAX = 2
TYPE_NAMES = frozenset({"int", "uint", "double", "string", "bytes", "bool", "list", "map", "null_type", "type"})
_STEP_FORM = 'write steps.name.output, or steps["my-step"].output for an id that is no name; or .status'

Arities = Mapping[tuple[str, bool], range]
"""From the name of a function, and whether it is a method, to how many arguments it takes."""


class Finding(NamedTuple):
    """Something wrong at a place in the text, in characters from 0."""

    at: int
    sentence: str


class StepRead(NamedTuple):
    """`steps.<id>.output` or `.status` at a place in the text."""

    at: int
    step_id: str
    part: str


def step_read(node: Node) -> StepRead | None:
    """What a node reads of a step: None if it is no read of a step in the form that is allowed."""
    match node:
        case Select(_, inner, "output" | "status" as part, _):
            pass
        case _:
            return None
    match inner:
        case Select(_, NameRead(at, "steps"), step_id, False) if step_id.isidentifier():
            return StepRead(at, step_id, part)
        case Call(_, "_[_]", None, (NameRead(at, "steps"), Constant(_, str(step_id)))):
            return StepRead(at, step_id, part)
        case _:
            return None


class NameCheck:
    """One pass over one tree; `findings` and `references` are complete when `look` has returned."""

    def __init__(self, scope: Scope, arities: Arities) -> None:
        self._scope, self._arities = scope, arities
        self._names: set[str] = set()
        self._outputs: set[str] = set()
        self._statuses: set[str] = set()
        self.findings: list[Finding] = []

    def references(self) -> References:
        return References(frozenset(self._names), frozenset(self._outputs), frozenset(self._statuses))

    def look(self, node: Node, variables: Sequence[str] = ()) -> None:
        """Note what the tree reads, and what is wrong with it; `variables` are those of the macros around it."""
        match node:
            case Select() if "steps" not in variables and (read := step_read(node)):
                self._step(read)
            case NameRead():
                self._name(node, variables)
            case MessageOf():
                self._add(node.at, f"{quoted(node.name)}: messages cannot be made here; write a map: {{'key': value}}")
            case Macro():
                self._macro(node, variables)
            case Call():
                self._call(node)
                self._all(children(node), variables)
            case _:
                self._all(children(node), variables)

    def _all(self, nodes: Sequence[Node], variables: Sequence[str]) -> None:
        for node in nodes:
            self.look(node, variables)

    def _step(self, read: StepRead) -> None:
        known = self._scope.steps
        if known is None:
            self._unknown(read.at, "steps")
        elif read.step_id in known:
            (self._outputs if read.part == "output" else self._statuses).add(read.step_id)
        elif read.step_id in self._scope.other_steps:
            self._add(read.at, f"step {quoted(read.step_id)} is not among the steps that this one depends on")
        else:
            self._add(read.at, f"there is no step {quoted(read.step_id)}")

    def _name(self, node: NameRead, variables: Sequence[str]) -> None:
        name = node.name
        if name in variables or name in TYPE_NAMES:
            return
        if name == "steps" and self._scope.steps is not None:
            self._add(node.at, _STEP_FORM)
        elif name in self._scope.names:
            self._names.add(name)
        else:
            self._unknown(node.at, name)

    def _unknown(self, at: int, name: str) -> None:
        declared = ", ".join(sorted(self._scope.declared())) or "none"
        self._add(at, f"{quoted(name)} is no name that can be read here; these are: {declared}")

    def _call(self, node: Call) -> None:
        if node.function[0] in "_@!-":
            return
        is_method = node.target is not None
        taken = self._arities.get((node.function, is_method))
        if taken is None:
            self._add(node.at, f"there is no {'method' if is_method else 'function'} {quoted(node.function)}")
        elif len(node.args) not in taken:
            counts = " or ".join(map(str, taken))
            self._add(node.at, f"{node.function} takes {counts} arguments, not {len(node.args)}")

    def _macro(self, node: Macro, variables: Sequence[str]) -> None:
        if len(variables) == MACROS_NESTED_MAX:
            self._add(node.at, f"macros (all, exists, map, filter) may be nested {MACROS_NESTED_MAX} deep, not deeper")
            return
        self.look(node.over, variables)
        inner = (*variables, node.variable)
        self._all([part for part in (node.condition, node.body) if part is not None], inner)

    def _add(self, at: int, sentence: str) -> None:
        self.findings.append(Finding(at, sentence))
