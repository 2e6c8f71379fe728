"""Names that become subject tokens and keys of the broker, and how a user's text is shown in messages.

One rule holds for names of workflows, steps, task types, triggers, signals, workers and worker groups. Rule: PROTOCOL,
Names and limits.
"""

from __future__ import annotations

import re

from penstock.config.limits import NAME_CHARS_MAX

SHOWN_MAX = 128

RESERVED_PREFIX = "penstock."
NAME_PATTERN = r"[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]+)*"

_NAME = re.compile(NAME_PATTERN)
_RUN_ID = re.compile(r"[0-9a-f]{32}")


def problem_with(kind: str, name: object, chars_max: int = NAME_CHARS_MAX) -> str | None:
    """A sentence that says what is wrong with `name`, beginning with `kind` (`workflow name`); None for a valid
    name."""
    if not isinstance(name, str):
        return f"{kind} must be a string, not {json_type(name)}"
    if not name:
        return f"{kind} is empty"
    if len(name) > chars_max:
        return f"{kind} {quoted(name)} has {len(name)} characters, {chars_max} is the most"
    if not _NAME.fullmatch(name):
        return f"{kind} {quoted(name)} may hold only A-Z a-z 0-9 _ - and single dots between them"
    return None


def problem_with_task(kind: str, name: object) -> str | None:
    """As `problem_with`, of a task type that workers may have: those that begin with `penstock.` are the service's."""
    if isinstance(name, str) and name.startswith(RESERVED_PREFIX):
        return f"{kind} {quoted(name)} is reserved: task types that begin with {RESERVED_PREFIX} are the service's own"
    return problem_with(kind, name)


def is_run_id(text: str) -> bool:
    """Whether `text` is 32 lowercase hex characters."""
    return _RUN_ID.fullmatch(text) is not None


def quoted(text: str) -> str:
    """`text` in double quotes, for one line of a response or a log: shortened, control characters escaped."""
    inner = text[: SHOWN_MAX + 1].replace("\\", "\\\\").replace('"', '\\"')
    return f'"{shown(inner)}"'


def shown(text: str, most: int = SHOWN_MAX) -> str:
    """`text` on one line: its first `most` characters, with unprintable ones escaped."""
    cut = text if len(text) <= most else text[:most] + "…"
    return cut if cut.isprintable() else "".join(map(_escaped, cut))


def json_type(value: object) -> str:
    """The JSON type of this decoded value, with its article, for messages to users."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def label_of(index: int, step: object) -> str:
    """How problems name the step at this place of a definition, which may be anything."""
    match step:
        case {"id": str(step_id)}:
            return f"step {quoted(step_id)}"
        case _:
            return f"steps[{index}]"
