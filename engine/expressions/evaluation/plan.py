"""Makes functions of a tree: each node becomes one that takes the evaluation and returns the node's value.

Evaluation is ours, and parsing is the library's: docs/adr/0020-expressions.md says why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from penstock.engine.expressions.evaluation.comparing import MAPS, BuiltList, BuiltMap, TypeName, kind_of, shown_key
from penstock.engine.expressions.evaluation.failures import EvaluationError
from penstock.engine.expressions.evaluation.functions import CALL_WORK, FUNCTIONS, METHODS, Function
from penstock.engine.expressions.evaluation.instants import read_time_span, read_timestamp
from penstock.engine.expressions.evaluation.macros import MacroParts, plan_macro
from penstock.engine.expressions.evaluation.operators import BINARY, UNARY, Operator
from penstock.engine.expressions.evaluation.state import Evaluation
from penstock.engine.expressions.evaluation.values import MISSING, Path, Root
from penstock.engine.expressions.syntax.names import TYPE_NAMES, step_read
from penstock.engine.expressions.syntax.tree import (
    Call,
    Const,
    ListOf,
    Macro,
    MapOf,
    MessageOf,
    NameRead,
    Node,
    Select,
    children,
)

Planned: TypeAlias = Callable[[Evaluation], Any]
Variables: TypeAlias = Mapping[str, int]
"""From the variables of the macros around a node to their places among those of the evaluation."""


def plan(node: Node, variables: Variables) -> Planned:
    """The function of a tree whose names, and timestamps and durations that it writes out, have been checked."""
    match node:
        case Const(_, value):
            return lambda run: value
        case NameRead(_, name):
            return _name(name, variables)
        case Select():
            return _select(node, variables)
        case Call(_, "timestamp" | "duration" as name, None, (Const(_, str(text)),)):
            found = read_timestamp(text) if name == "timestamp" else read_time_span(text)
            return lambda run: found
        case Call():
            return _call(node, variables)
        case ListOf(_, items):
            planned = [plan(each, variables) for each in items]
            return lambda run: BuiltList([each(run) for each in planned])
        case MapOf(_, entries):
            return _map([(plan(key, variables), plan(value, variables)) for key, value in entries])
        case Macro():
            return _macro(node, variables)
        case MessageOf():
            raise AssertionError("the check of names lets no message pass")


def nodes(node: Node) -> int:
    """How many nodes a tree has."""
    return 1 + sum(nodes(child) for child in children(node))


def _name(name: str, variables: Variables) -> Planned:
    if name in variables:
        place = variables[name]
        return lambda run: run.variables[place]
    if name in TYPE_NAMES:
        found = TypeName(name)
        return lambda run: found
    return lambda run: run.values.read(name)


def _select(node: Select, variables: Variables) -> Planned:
    root, path = value_path(node, variables)
    if root is not None and not path:
        return _step(root, node.test)
    operand, field = plan(node.operand, variables), node.field
    if node.test:
        return _has(operand, field) if root is None else _has_path(root, path, _has(operand, field))
    return _field(operand, field) if root is None else _along(root, path, _field(operand, field))


def value_path(node: Node, variables: Collection[str]) -> tuple[Root | None, Path]:
    """The value that the node reads, and the keys that lead to it from there; None for a node that does anything
    else."""
    if isinstance(node, NameRead):
        is_value = node.name not in variables and node.name not in TYPE_NAMES
        return (node.name, ()) if is_value else (None, ())
    if "steps" not in variables and (read := step_read(node)):
        return (read.step_id, read.part), ()
    match node:
        case Select(_, Select(test=True)):
            return None, ()
        case Select(_, operand, key, _) | Call(_, "_[_]", None, (operand, Const(_, str(key)))):
            root, path = value_path(operand, variables)
            return root, (*path, key) if root is not None else ()
        case _:
            return None, ()


def _step(root: Root, test: bool) -> Planned:
    return (lambda run: True) if test else (lambda run: run.values.read(root))


def _along(root: Root, path: Path, whole: Planned) -> Planned:
    """Reads what stands at the path of a large value; `whole` does the same with all of the value, and knows why there
    is nothing."""

    def read(run: Evaluation) -> Any:
        found = run.values.read_path(root, path)
        return whole(run) if found is MISSING else found

    return read


def _has_path(root: Root, path: Path, whole: Planned) -> Planned:
    def has(run: Evaluation) -> bool:
        found = run.values.has_path(root, path)
        return bool(whole(run)) if found is None else found

    return has


def _field(operand: Planned, field: str) -> Planned:
    def select(run: Evaluation) -> Any:
        value = operand(run)
        if type(value) in MAPS:
            if field in value:
                return value[field]
            raise EvaluationError(f"there is no key {shown_key(field)}")
        raise EvaluationError(f"{kind_of(value)} has no {shown_key(field)}")

    return select


def _has(operand: Planned, field: str) -> Planned:
    def has(run: Evaluation) -> bool:
        value = operand(run)
        if type(value) in MAPS:
            return field in value
        raise EvaluationError(f"has(): {kind_of(value)} has no fields")

    return has


def _map(entries: list[tuple[Planned, Planned]]) -> Planned:
    def make(run: Evaluation) -> BuiltMap:
        made = BuiltMap()
        for key_of, value_of in entries:
            key = key_of(run)
            if type(key) is not str and type(key) is not int:
                raise EvaluationError(f"a key of a map is a string or an integer, not {kind_of(key)}")
            if key in made:
                raise EvaluationError(f"the key {shown_key(key)} stands twice in a map")
            made[key] = value_of(run)
        return made

    return make


def _call(node: Call, variables: Variables) -> Planned:
    parts = [plan(each, variables) for each in children(node)]
    match node.function:
        case "_&&_":
            return _decides(parts[0], parts[1], False, "&&")
        case "_||_":
            return _decides(parts[0], parts[1], True, "||")
        case "_?_:_":
            return _choice(*parts)
        case "_[_]" if (path := value_path(node, variables))[0] is not None:
            return _along(path[0], path[1], _binary(BINARY["_[_]"], parts[0], parts[1]))
        case name if name in BINARY:
            return _binary(BINARY[name], parts[0], parts[1])
        case name if name in UNARY:
            return _unary(UNARY[name], parts[0])
        case name:
            return _function(name, (FUNCTIONS if node.target is None else METHODS)[name], parts)


def _binary(operator: Operator, left: Planned, right: Planned) -> Planned:
    return lambda run: operator(run, left(run), right(run))


def _unary(operator: Callable[[Any], Any], operand: Planned) -> Planned:
    return lambda run: operator(operand(run))


def _function(name: str, function: Function, parts: list[Planned]) -> Planned:
    if name in CALL_WORK:
        return _long_function(CALL_WORK[name], function, parts)
    return lambda run: function(run, *[part(run) for part in parts])


def _long_function(work: int, function: Function, parts: list[Planned]) -> Planned:
    def call(run: Evaluation) -> Any:
        run.spend(work)
        return function(run, *[part(run) for part in parts])

    return call


def _decides(left: Planned, right: Planned, deciding: bool, operator: str) -> Planned:
    """`&&` and `||`: a side that decides is the value, whatever the other one is, and even if that one fails."""

    def decide(run: Evaluation) -> bool:
        failure: EvaluationError | None = None
        try:
            if _bool(left(run), operator) is deciding:
                return deciding
        except EvaluationError as error:
            failure = error
        if _bool(right(run), operator) is deciding:
            return deciding
        if failure is not None:
            raise failure
        return not deciding

    return decide


def _choice(condition: Planned, yes: Planned, no: Planned) -> Planned:
    def choose(run: Evaluation) -> Any:
        return yes(run) if _bool(condition(run), "? :") else no(run)

    return choose


def _bool(value: Any, operator: str) -> bool:
    if value is True or value is False:
        return bool(value)
    raise EvaluationError(f'"{operator}" needs true or false, not {kind_of(value)}')


def _macro(node: Macro, variables: Variables) -> Planned:
    place = max(variables.values(), default=-1) + 1
    inner = {**variables, node.variable: place}
    parts = [node.condition, node.body]
    condition, body = (None if part is None else plan(part, inner) for part in parts)
    work = sum(nodes(part) for part in parts if part is not None)
    return plan_macro(node.kind, MacroParts(plan(node.over, variables), place, condition, body, work))
