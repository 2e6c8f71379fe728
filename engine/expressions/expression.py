"""One expression: compiled once, evaluated as often as its values come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from msgspec import Raw

from penstock.config.limits import EXPRESSION_BYTES_MAX, EXPRESSION_ITERATIONS_MAX, PATTERN_STATES_MAX
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import ExpressionFailed, Invalid
from penstock.engine.expressions.evaluation.comparing import kind_of
from penstock.engine.expressions.evaluation.failures import BoundExceeded, EvaluationError
from penstock.engine.expressions.evaluation.functions import ARITIES
from penstock.engine.expressions.evaluation.instants import read_time_span, read_timestamp
from penstock.engine.expressions.evaluation.load import Load
from penstock.engine.expressions.evaluation.patterns import problem_with_pattern
from penstock.engine.expressions.evaluation.plan import Planned, plan, value_path
from penstock.engine.expressions.evaluation.results import json_of, plain, text_of
from penstock.engine.expressions.evaluation.state import Evaluation
from penstock.engine.expressions.evaluation.values import Values
from penstock.engine.expressions.scope import References, Scope
from penstock.engine.expressions.syntax.library import Environment, SyntaxProblem, environment
from penstock.engine.expressions.syntax.names import MACROS_NESTED_MAX, Finding, NameCheck
from penstock.engine.expressions.syntax.tree import Call, Const, Macro, Node, children

Wanted = Literal["any", "bool"]
Result = TypeVar("Result")


class Expression:
    """Never changes; whoever keeps the definition keeps it, for as long. May be evaluated in any thread.

    `references` are what it reads. `warnings` are sentences, each with its column, on what may go over a bound.
    """

    __slots__ = ("_light_bytes", "_load", "_plan", "_roots", "_whole", "references", "scope", "text", "warnings")

    def __init__(self, text: str, scope: Scope, node: Node, references: References, warnings: tuple[str, ...]) -> None:
        self.text, self.scope, self.references, self.warnings = text, scope, references, warnings
        self._plan: Planned = plan(node, {})
        self._load = Load.of(node)
        self._roots = self._load.roots
        self._light_bytes: int | None = None  # known when it is first asked for
        root, path = value_path(node, ())
        self._whole = None if path or getattr(node, "test", False) else root

    def evaluate(self, values: Values | Mapping[str, Any]) -> Any:
        """The value as JSON has it, in Python. Raises ExpressionFailed, with the expression and the reason."""
        return self._finish(values, plain)

    def holds(self, values: Values | Mapping[str, Any]) -> bool:
        """Whether it is true; raises ExpressionFailed also for what is neither true nor false."""
        return self.truth(self._finish(values, _same))

    def truth(self, value: Any) -> bool:
        """The value that it gave, if it is true or false; raises ExpressionFailed for any other."""
        if value is True or value is False:
            return bool(value)
        raise ExpressionFailed(f"expression {quoted(self.text)}: it gives {kind_of(value)}, not true or false")

    def json(self, values: Values | Mapping[str, Any]) -> bytes:
        """The value as compact JSON, at most 1 MiB. Raises ExpressionFailed."""
        return self._finish(values, json_of)

    def interpolated(self, values: Values | Mapping[str, Any]) -> str:
        """The value as it stands in a longer text. Raises ExpressionFailed."""
        return self._finish(values, text_of)

    def passed_on(self, values: Values) -> Raw | None:
        """The JSON of a value, as it was given, if all that the expression does is to name it; else None."""
        given = None if self._whole is None else values.given(self._whole)
        return given if isinstance(given, Raw) else None

    def is_heavy(self, values: Values) -> bool:
        """Whether it may take more than about 10 ms over these values: then not in an event loop."""
        return self.may_be_heavy(sum(map(values.size, self._roots))) and self._load.is_heavy(values)

    def may_be_heavy(self, size: int) -> bool:
        """Whether there are values of so many bytes of JSON over which it is heavy."""
        if self._light_bytes is None:
            self._light_bytes = self._load.light_bytes()
        return size > self._light_bytes

    def _finish(self, values: Values | Mapping[str, Any], finish: Callable[[Any], Result]) -> Result:
        run = Evaluation(values if isinstance(values, Values) else Values(values), MACROS_NESTED_MAX)
        try:
            return finish(self._plan(run))
        except (EvaluationError, BoundExceeded) as error:
            raise ExpressionFailed(f"expression {quoted(self.text)}: {error}") from error
        except RecursionError as error:
            raise ExpressionFailed(f"expression {quoted(self.text)}: a value is nested too deep") from error


def compile_expression(text: str, scope: Scope, wanted: Wanted = "any", *, at: int = 0) -> Expression:
    """The expression that may stand in a place with this scope.

    Raises Invalid with every problem, each beginning with its column (`column 7: …`). `wanted` is what it must give:
    for `bool`, an expression that can never be true or false is a problem. `at` is how many characters stand before it
    on its first line.
    """
    tree, references, problems = _checked(text, scope, wanted)
    if tree is None or problems:
        raise Invalid(*(_sentence(problem, at) for problem in problems))
    warnings = tuple(_sentence(_placed(text, finding), at) for finding in _risks(tree))
    return Expression(text, scope, tree, references, warnings)


def _checked(text: str, scope: Scope, wanted: Wanted) -> tuple[Node | None, References, list[SyntaxProblem]]:
    """The tree and what it reads, or problems: those of the text, else those of its names, else those of its types."""
    if problem := _unreadable(text):
        return None, References(), [SyntaxProblem(1, 1, problem)]
    library = environment(scope.declared())
    tree, problems = library.parse(text)
    if tree is None:
        return None, References(), problems
    check = NameCheck(scope, ARITIES)
    check.look(tree)
    problems = [_placed(text, finding) for finding in (*check.findings, *_written_findings(tree))]
    return tree, check.references(), problems or _type_problems(library, text, wanted)


def _unreadable(text: str) -> str | None:
    if not text.strip():
        return "the expression is empty"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "the expression has half of a surrogate pair in it"
    return (
        f"the expression has {size} bytes, {EXPRESSION_BYTES_MAX} is the most" if size > EXPRESSION_BYTES_MAX else None
    )


def _type_problems(library: Environment, text: str, wanted: Wanted) -> list[SyntaxProblem]:
    given, problems = library.check(text)
    if not problems and wanted == "bool" and given not in ("BOOL", "DYN"):
        return [SyntaxProblem(1, 1, f"the expression gives {_GIVEN.get(given, given.lower())}, not true or false")]
    return problems


_GIVEN = {
    "INT": "a number",
    "UINT": "a number",
    "DOUBLE": "a number",
    "STRING": "a string",
    "BYTES": "bytes",
    "NULL": "null",
    "NULL_TYPE": "null",
    "TIMESTAMP": "a timestamp",
    "DURATION": "a duration",
}


def _same(value: Any) -> Any:
    return value


def _written_findings(node: Node) -> Iterator[Finding]:
    """Regular expressions, timestamps and durations that stand in the text and are none."""
    match node:
        case Call(at, "matches", _, (*_, Const(_, str(pattern)))):
            if problem := problem_with_pattern(pattern):
                yield Finding(at, problem)
        case Call(at, "timestamp" | "duration" as name, None, (Const(_, str(text)),)):
            try:
                _READ[name](text)
            except EvaluationError as error:
                yield Finding(at, str(error))
    for child in children(node):
        yield from _written_findings(child)


def _risks(node: Node, inside: bool = False) -> Iterator[Finding]:
    """What is allowed, and goes over a bound where what it reads is large, or hostile."""
    match node:
        case Macro() if inside:
            elements = f"{EXPRESSION_ITERATIONS_MAX:,} elements in all"
            yield Finding(node.at, f"a macro inside a macro fails when they go through more than {elements}")
        case Call(at, "matches", _, (*_, pattern)) if not isinstance(pattern, Const):
            most = f"{PATTERN_STATES_MAX:,} states"
            yield Finding(at, f"a regular expression that is a value fails if it is not valid, or has more than {most}")
    for child in children(node):
        within = isinstance(node, Macro) and child is not node.over
        yield from _risks(child, inside or within)


_READ: dict[str, Callable[[str], object]] = {"timestamp": read_timestamp, "duration": read_time_span}


def _placed(text: str, finding: Finding) -> SyntaxProblem:
    """The finding with line and column of its character."""
    before = text[: finding.at]
    return SyntaxProblem(before.count("\n") + 1, finding.at - before.rfind("\n"), finding.sentence)


def _sentence(problem: SyntaxProblem, at: int) -> str:
    line, column, sentence = problem
    return f"column {column + at}: {sentence}" if line == 1 else f"line {line}, column {column}: {sentence}"
