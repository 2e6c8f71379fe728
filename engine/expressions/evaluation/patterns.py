"""Regular expressions (RE2), bounded: a match takes up to the states of the pattern times the length of the text.

RE2 alone is no bound: `(a?){1000}` over 1 MiB takes half a minute. So the states are counted before anything matches.
"""

from __future__ import annotations

import re
from functools import lru_cache

from penstock.config.limits import EXPRESSION_BYTES_MAX, PATTERN_STATES_MAX
from penstock.engine.expressions.evaluation.failures import EvaluationError
from penstock.engine.expressions.evaluation.state import PATTERN_WORK, VALUE_WORK, Evaluation
from penstock.engine.expressions.syntax.library import found_in

_ANY_STATES = 8  # any character, as UTF-8
_UNICODE_STATES = 400
_TOKEN = re.compile(
    r"\\Q.*?(?:\\E|$)|\\[pP](?:\{[^}]*\}|.)|\\x\{[0-9A-Fa-f]*\}|\\."  # escapes
    r"|\[\^?\]?(?:\[:\^?[a-z]{1,10}:\]|\\.|[^\]\\])*(?:\]|$)"  # a class; one that does not end is not valid anyway
    r"|\{(\d+)(,?)(\d*)\}|[()|]|.",
    re.DOTALL,
)


def matches(run: Evaluation, text: str, pattern: str) -> bool:
    """Whether the pattern is found anywhere in the text."""
    states = _checked_states(pattern)
    run.spend(VALUE_WORK * states + PATTERN_WORK * (states + 1) * len(text))
    try:
        return found_in(text, pattern)
    except ValueError as error:
        raise EvaluationError(f"the regular expression is not valid: {error}") from error


def problem_with_pattern(pattern: str) -> str | None:
    """A sentence for a pattern that cannot be used, whatever the text is."""
    try:
        _checked_states(pattern)
        found_in("", pattern)
    except ValueError as error:
        return f"the regular expression is not valid: {error}"
    except EvaluationError as error:
        return str(error)
    return None


def _checked_states(pattern: str) -> int:
    if len(pattern) > EXPRESSION_BYTES_MAX:
        raise EvaluationError(
            f"the regular expression has {len(pattern)} characters, {EXPRESSION_BYTES_MAX} is the most"
        )
    states = states_of(pattern)
    if states > PATTERN_STATES_MAX:
        raise EvaluationError(
            f"the regular expression has {states} states with its repetitions, {PATTERN_STATES_MAX} is the most"
        )
    return states


@lru_cache(maxsize=1024)
def states_of(pattern: str) -> int:
    """At least as many states as RE2 makes of the pattern, about: groups times their counted repetitions."""
    sizes: list[list[int]] = [[0, 0]]  # of each open group: all of it, and its last part
    for token in _TOKEN.finditer(pattern):
        _take(sizes, token)
    return min(sum(whole + last for whole, last in sizes), 1 << 62)


def _take(sizes: list[list[int]], token: re.Match[str]) -> None:
    text = token[0]
    if text == "(":
        sizes.append([1, 0])
    elif text == ")" and len(sizes) > 1:
        whole, last = sizes.pop()
        _part(sizes[-1], whole + last)
    elif token[1] is not None:  # a counted repetition
        most = max(int(token[1][:6]), int(token[3][:6] or 0), 1)
        sizes[-1][1] = min((sizes[-1][1] + 1) * most, 1 << 40)
    else:
        _part(sizes[-1], _size(text))


def _part(group: list[int], size: int) -> None:
    group[0], group[1] = group[0] + group[1], size


def _size(part: str) -> int:
    """States of one character or class. A class of Unicode is a small machine of its own over the bytes of UTF-8."""
    if part == ".":
        return _ANY_STATES
    unicode_classes = len(re.findall(r"\\[pP]", part)) if part[0] == "[" else part.startswith(("\\p", "\\P"))
    if unicode_classes:
        return _UNICODE_STATES * unicode_classes
    if part[0] != "[":
        return len(part.removeprefix("\\").encode("utf-8", "surrogatepass"))
    return len(part) // 2 if part.isascii() and part[1:2] != "^" else _ANY_STATES + 3 * len(part)
