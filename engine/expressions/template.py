"""JSON with expressions in its strings: `${{ input.total }}` as a whole string is the value with its type, inside a
longer string its text. Keys are no templates, and results are never evaluated again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import msgspec

from penstock.config.limits import EXPRESSION_RESULT_BYTES_MAX
from penstock.engine.definition.http_requests import is_secret_name
from penstock.engine.errors import ExpressionFailed, Invalid
from penstock.engine.expressions.evaluation.values import Values
from penstock.engine.expressions.expression import Expression, compile_expression
from penstock.engine.expressions.scope import References, Scope, all_references
from penstock.engine.expressions.template_text import Placeholder, has_placeholder, split

_encode = msgspec.json.Encoder().encode


class WholeValue(msgspec.Struct, frozen=True):
    """A string that is one expression: its value takes the string's place. `path` is where it stands."""

    path: str
    expression: Expression


class LongerText(msgspec.Struct, frozen=True):
    """A string with expressions in it: their texts are put between the rest."""

    path: str
    parts: tuple[str | Expression, ...]


Piece = bytes | WholeValue | LongerText


class Template:
    """Never changes; whoever keeps the definition keeps it, for as long. May be evaluated in any thread."""

    __slots__ = ("_pieces", "path", "references", "scope", "secrets", "source")

    def __init__(self, source: Any, scope: Scope, path: str, secrets: bool, pieces: list[Piece]) -> None:
        self.source, self.scope, self.path, self.secrets = source, scope, path, secrets
        self._pieces = tuple(_merged(pieces))
        self.references: References = all_references(each.references for each in self._expressions())

    @property
    def is_constant(self) -> bool:
        """Whether it reads nothing and has no expression: `json` gives it with any values."""
        return not any(True for _ in self._expressions())

    @property
    def warnings(self) -> list[str]:
        """Sentences on what may go over a bound, each with path and column."""
        return [
            f"{piece.path}: {warning}"
            for piece in self._pieces
            if not isinstance(piece, bytes)
            for expression in _expressions(piece)
            for warning in expression.warnings
        ]

    def json(self, values: Values | Mapping[str, Any]) -> bytes:
        """The value as JSON, at most 1 MiB, compact but for payloads that are passed on as they came.

        Raises ExpressionFailed, with the path, the expression and the reason.
        """
        read = values if isinstance(values, Values) else Values(values)
        written: list[bytes] = []
        size = 0
        for piece in self._pieces:
            part = piece if isinstance(piece, bytes) else _written(piece, read)
            size += len(part)
            written.append(part)
            if size > EXPRESSION_RESULT_BYTES_MAX:
                raise ExpressionFailed(f"{_path(piece)}the result has more than {EXPRESSION_RESULT_BYTES_MAX} bytes")
        return b"".join(written)

    def evaluate(self, values: Values | Mapping[str, Any]) -> Any:
        """The value as JSON has it, in Python. Raises ExpressionFailed."""
        return msgspec.json.decode(self.json(values))

    def is_heavy(self, values: Values) -> bool:
        """Whether it may take more than about 10 ms over these values: then not in an event loop."""
        return any(each.is_heavy(values) for each in self._expressions())

    def may_be_heavy(self, size: int) -> bool:
        """Whether there are values of so many bytes of JSON over which it is heavy."""
        return any(each.may_be_heavy(size) for each in self._expressions())

    def _expressions(self) -> Iterator[Expression]:
        for piece in self._pieces:
            if not isinstance(piece, bytes):
                yield from _expressions(piece)


def compile_template(value: Any, scope: Scope, path: str, *, secrets: bool = False) -> Template:
    """The template that `value`, decoded JSON, is.

    Raises Invalid with every problem, each beginning with the path of its string below `path` and the column in that
    string: `with.user.name: column 7: …`. With `secrets`, a string with `${{ secret.NAME }}` in it becomes an array of
    its texts and `{"secret": NAME}`, for whoever knows the secret.
    """
    builder = _Builder(scope, secrets)
    try:
        builder.add(value, path)
    except (TypeError, ValueError, RecursionError) as error:  # half a surrogate pair, a depth that JSON does not have
        raise Invalid(f"{path} cannot be written as JSON: {error}") from error
    if builder.problems:
        raise Invalid(*builder.problems)
    return Template(value, scope, path, secrets, builder.pieces)


class _Builder:
    """Compiles one template; `pieces` are complete, unless there are `problems`, when `add` has returned."""

    def __init__(self, scope: Scope, secrets: bool) -> None:
        self._scope, self._secrets = scope, secrets
        self.pieces: list[Piece] = []
        self.problems: list[str] = []

    def add(self, value: Any, path: str) -> None:
        if isinstance(value, str) and has_placeholder(value):
            self._text(value, path)
        elif isinstance(value, dict):
            self._object(value, path)
        elif isinstance(value, list):
            self._array(value, path)
        else:
            self.pieces.append(_encode(value))

    def _object(self, value: dict[str, Any], path: str) -> None:
        self.pieces.append(b"{")
        for place, (key, each) in enumerate(value.items()):
            self.pieces.append((b"," if place else b"") + _encode(key) + b":")
            self.add(each, f"{path}.{key}")
        self.pieces.append(b"}")

    def _array(self, value: list[Any], path: str) -> None:
        self.pieces.append(b"[")
        for place, each in enumerate(value):
            if place:
                self.pieces.append(b",")
            self.add(each, f"{path}[{place}]")
        self.pieces.append(b"]")

    def _text(self, text: str, path: str) -> None:
        try:
            parts = split(text)
        except Invalid as error:
            self.problems += [f"{path}: {problem}" for problem in error.problems]
            return
        if self._secrets and any(map(secret_in, parts)):
            self._text_with_secrets(parts, path)
        else:
            self._parts(parts, path)

    def _text_with_secrets(self, parts: list[str | Placeholder], path: str) -> None:
        """An array: of what stands between two secrets, and of the secrets."""
        self.pieces.append(b"[")
        for place, (name, group) in enumerate(groupby(parts, secret_in)):
            if place:
                self.pieces.append(b",")
            if name:
                self.pieces.append(b",".join(_encode({"secret": name}) for _ in group))
            else:
                self._parts([*group, ""], path)
        self.pieces.append(b"]")

    def _parts(self, parts: list[str | Placeholder], path: str) -> None:
        """One string: the value of its only expression, or a text."""
        compiled = [part if isinstance(part, str) else self._expression(part, path) for part in parts]
        known = tuple(part for part in compiled if part is not None)
        match known:
            case (Expression() as only,):
                self.pieces.append(WholeValue(path, only))
            case _ if all(isinstance(part, str) for part in known):
                self.pieces.append(_encode("".join(map(str, known))))
            case _:
                self.pieces.append(LongerText(path, known))

    def _expression(self, part: Placeholder, path: str) -> Expression | None:
        stripped = part.expression.lstrip()
        at = part.at + len(part.expression) - len(stripped)
        try:
            return compile_expression(stripped.rstrip(), self._scope, at=at)
        except Invalid as error:
            self.problems += [f"{path}: {problem}" for problem in error.problems]
            return None


def has_secret(text: str) -> bool:
    """Whether `${{ secret.NAME }}` stands in the text of a valid template."""
    return has_placeholder(text) and any(map(secret_in, split(text)))


def secret_in(part: str | Placeholder) -> str | None:
    """The name of the secret that the part is; None for any other part."""
    if isinstance(part, str):
        return None
    head, _, name = part.expression.strip().partition(".")
    return name if head == "secret" and is_secret_name(name) else None


def _merged(pieces: list[Piece]) -> Iterator[Piece]:
    """The same with neighbouring constant pieces in one."""
    constant = b""
    for piece in pieces:
        if isinstance(piece, bytes):
            constant += piece
            continue
        if constant:
            yield constant
        constant = b""
        yield piece
    if constant:
        yield constant


def _expressions(piece: WholeValue | LongerText) -> list[Expression]:
    if isinstance(piece, WholeValue):
        return [piece.expression]
    return [part for part in piece.parts if isinstance(part, Expression)]


def _written(piece: WholeValue | LongerText, values: Values) -> bytes:
    try:
        if isinstance(piece, WholeValue):
            given = piece.expression.passed_on(values)
            return piece.expression.json(values) if given is None else bytes(given)
        parts = (part if isinstance(part, str) else part.interpolated(values) for part in piece.parts)
        return _encode("".join(parts))
    except ExpressionFailed as error:
        raise ExpressionFailed(f"{piece.path}: {error}") from error


def _path(piece: Piece) -> str:
    return "" if isinstance(piece, bytes) else f"{piece.path}: "
