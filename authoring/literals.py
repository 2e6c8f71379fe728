"""Values of Python as literals of expressions."""

from __future__ import annotations

import math
import re

from penstock.engine.errors import Invalid

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What CEL keeps for itself: none of these may follow a dot.
RESERVED = frozenset(
    {
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop"),
        *("namespace", "null", "package", "return", "true", "var", "void", "while"),
    }
)
INTEGER_MAX = 2**63 - 1

_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNPRINTABLE = re.compile(r'["\\\x00-\x1f\x7f-\x9f\u2028\u2029]')


def quoted_text(text: str) -> str:
    """The text as a string of an expression: nothing in it can end the string. Raises Invalid for half a surrogate
    pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"{text!r} is no text that JSON can hold") from error
    return f'"{_UNPRINTABLE.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    return _ESCAPED.get(found[0]) or f"\\u{ord(found[0]):04x}"


def number_text(value: float) -> str:
    """The number as an expression writes it. Raises Invalid for one that it cannot write."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Invalid(f"{value} is no number of JSON")
        return repr(value)
    if abs(value) > INTEGER_MAX:
        raise Invalid(f"{value} has more than the 64 bits of an expression's integers")
    return str(value)


def member(name: str) -> str:
    """What follows a value to name a field of it: `.total`, or `["first-name"]`."""
    return f".{name}" if NAME.fullmatch(name) and name not in RESERVED else f"[{quoted_text(name)}]"
