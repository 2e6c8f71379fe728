"""Subjects of the broker that users name: which are allowed, and which belong to the service."""

from __future__ import annotations

import re

from penstock.engine.definition.identifiers import json_type, quoted

SUBJECT_CHARS_MAX = 255

# First tokens of the service's own subjects. Users may use `event`.
RESERVED = frozenset(
    {"history", "schedule", "task", "sticky", "dead", "telemetry", "watch", "cron", "penstock", "_INBOX"}
    | {"log", "stream", "progress", "audit", "worker"}
)

_WORD = r"[^\s.*>\x00-\x20\x7f]+"
_OWN = "|".join((r"\$.*", *sorted(RESERVED)))
_FIRST = rf"(?!({_OWN})(\.|$)){_WORD}"
_TOKEN = re.compile(_WORD)

# Patterns for schemas: the subjects that `problem_with_subject` accepts.
LITERAL_PATTERN = rf"{_FIRST}(\.{_WORD})*"
WILDCARD_PATTERN = rf"{_FIRST}(\.({_WORD}|\*))*(\.>)?"


def problem_with_subject(path: str, value: object, *, wildcards: bool = False) -> str | None:
    """A sentence that begins with `path` and says what is wrong with a subject; None for a valid one.

    With `wildcards`, `*` may replace any token but the first, and `>` all tokens that follow.
    """
    if not isinstance(value, str):
        return f"{path} must be a string, not {json_type(value)}"
    if len(value) > SUBJECT_CHARS_MAX:
        return f"{path} has {len(value)} characters, {SUBJECT_CHARS_MAX} is the most"
    first, *rest = value.split(".")
    if not _TOKEN.fullmatch(first) or not all(
        _fits(part, wildcards, last=at == len(rest)) for at, part in enumerate(rest, start=1)
    ):
        kind = (
            "tokens with single dots between them, the first without wildcards"
            if wildcards
            else "tokens with single dots between them"
        )
        return f"{path} {quoted(value)} must be {kind}"
    if first.startswith("$") or first in RESERVED:
        return f"{path} {quoted(value)} belongs to the service itself"
    return None


def _fits(part: str, wildcards: bool, *, last: bool) -> bool:
    return bool(_TOKEN.fullmatch(part)) or (wildcards and (part == "*" or (part == ">" and last)))


def covers(wide: str, narrow: str) -> bool:
    """Whether the pattern `wide` matches every subject that `narrow`, a pattern or one subject, matches."""
    theirs, ours = wide.split("."), narrow.split(".")
    for at, part in enumerate(theirs):
        if part == ">":
            return len(ours) > at
        if at >= len(ours) or ours[at] == ">" or (part != "*" and part != ours[at]):
            return False
    return len(theirs) == len(ours)
