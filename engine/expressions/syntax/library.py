"""The CEL library: parses an expression, checks its types, and runs regular expressions. Nothing else imports it.

It is loaded when the first expression is compiled. Values never go through it, but for the text and the pattern of a
regular expression: the reasons are in docs/adr/0020-expressions.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from penstock.engine.definition.identifiers import shown
from penstock.engine.expressions.syntax.tree import Node, read_tree

# Each is one error: where it stands, and the library's own words up to the excerpt of the text.
_ERROR = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*?)(?=\n \||\nERROR:| \[INVALID_ARGUMENT\]|$)", re.DOTALL)
_OVERLOAD = re.compile(r"found no matching overload for '(.+?)' applied to '\((.*)\)'")
_NUMBER_TYPE = re.compile(r"\b(?:int|uint|double)\b")
_TOO_DEEP = "recursion"
_CONSEQUENCE = "*error*"
DEPTH_MAX = 32
WORDS_MAX = 100  # of the text are shown in a problem
_MIXED = {"_+_", "_-_", "_*_", "_/_", "_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_"}
_SHOWN_OPERATOR = re.compile(r"_(.+)_|@(in)|(.+?)_")
_SYNTAX = (
    (re.compile(r"Syntax error: .*'<EOF>'(?: expecting.*)?$", re.DOTALL), "the expression ends too early"),
    (re.compile(r"Syntax error: token recognition error at: (.*)", re.DOTALL), "{} is no part of the language"),
    (re.compile(r"Syntax error: no viable alternative at input (.*)", re.DOTALL), "{} is not expected"),
    (re.compile(r"Syntax error: (?:mismatched|extraneous) input (.*?) expecting.*", re.DOTALL), "{} is not expected"),
    (re.compile(r"Syntax error: missing (.*?) at .*", re.DOTALL), "{} is missing"),
)


class SyntaxProblem(NamedTuple):
    """`line` and `column` count from 1; `sentence` says what is wrong there."""

    line: int
    column: int
    sentence: str


class Environment:
    """The names of one scope, known to the library's type checker; kept as long as the process lives."""

    __slots__ = ("_compile",)

    def __init__(self, names: Iterable[str]) -> None:
        cel = library()
        self._compile: Callable[..., Any] = cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN)).compile

    def parse(self, text: str) -> tuple[Node | None, list[SyntaxProblem]]:
        """The tree, or the first syntax error: what follows it is mostly its consequence."""
        try:
            return read_tree(self._compile(text, disable_check=True).serialize()), []
        except (RuntimeError, ValueError) as error:
            return None, _syntax_problems(str(error))

    def check(self, text: str) -> tuple[str, list[SyntaxProblem]]:
        """The type of the result (`BOOL`, `INT`, …, `DYN` for one that only its values decide), and operators and
        functions that get what they cannot take."""
        try:
            return str(self._compile(text).return_type().name()), []
        except (RuntimeError, ValueError) as error:
            problems = [SyntaxProblem(line, column, message) for line, column, message in _errors(str(error))]
            return "DYN", [_typed(problem) for problem in problems if not _is_allowed(problem.sentence)]


def library() -> Any:
    """The CEL library, imported when it is first asked for: who uses no expression never loads it."""
    from cel_expr_python import cel

    return cel


@lru_cache(maxsize=32)
def environment(names: frozenset[str]) -> Environment:
    return Environment(names)


def found_in(text: str, pattern: str) -> bool:
    """Whether the regular expression (RE2) matches somewhere in `text`; raises ValueError for one that is invalid."""
    # As byte arrays: a string would lose what follows a NUL.
    data = {"text": bytearray(text.encode()), "pattern": bytearray(pattern.encode())}
    answer = _matcher().eval(data=data).value()
    if isinstance(answer, bool):
        return answer
    raise ValueError(str(answer).rpartition("regular expression: ")[2])


@lru_cache(maxsize=1)
def _matcher() -> Any:
    cel = library()
    declared = {"text": cel.Type.BYTES, "pattern": cel.Type.BYTES}
    return cel.NewEnv(variables=declared).compile("string(text).matches(string(pattern))")


def _syntax_problems(message: str) -> list[SyntaxProblem]:
    errors = _errors(message)
    deep = _TOO_DEEP in message or any(line < 1 or column < 1 for line, column, _ in errors)
    if deep or not errors:
        return [SyntaxProblem(1, 1, f"the expression is nested or chained more than {DEPTH_MAX} deep")]
    line, column, words = errors[0]
    return [SyntaxProblem(line, column, _in_our_words(words))]


def _errors(message: str) -> list[tuple[int, int, str]]:
    return [(int(line), int(column), words.strip()) for line, column, words in _ERROR.findall(message)]


def _in_our_words(words: str) -> str:
    for pattern, sentence in _SYNTAX:
        if found := pattern.fullmatch(words):
            return sentence.format(*(shown(part, WORDS_MAX) for part in found.groups()))
    return shown(words.removeprefix("Syntax error: "), WORDS_MAX)


def _is_allowed(words: str) -> bool:
    """Whether an operator that the checker refuses is one of numbers of several types, or chooses between values of
    any: both are fine where all values are JSON. Nor does the consequence of another error count."""
    if _CONSEQUENCE in words:
        return True
    found = _OVERLOAD.match(words)
    if found is None:
        return False
    operator, types = found[1], _NUMBER_TYPE.sub("number", found[2]).split(", ")
    if operator == "_?_:_":
        return types[0] in ("bool", "dyn")
    if operator == "@in":
        return len(types) == 2 and types[1] == f"list({types[0]})"
    return operator in _MIXED and len(types) == 2 and types[0] == types[1] and "number" in types[0]


def _typed(problem: SyntaxProblem) -> SyntaxProblem:
    found = _OVERLOAD.match(problem.sentence)
    if found is None:
        return problem
    shown = _SHOWN_OPERATOR.fullmatch(found[1])
    operator = next((part for part in shown.groups() if part), found[1]) if shown else found[1]
    types = found[2].replace("google.protobuf.", "").lower()
    return problem._replace(sentence=f'"{operator}" does not go with ({types})')
