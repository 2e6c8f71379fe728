"""Warnings and errors of this process's log, kept until they are published. Logging never waits for that.

The event's name and its fields are kept, long texts shortened. Of an exception, the type and the place are kept: its
text is in the log only, since it may quote what a user sent.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter, deque
from traceback import extract_tb
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger

WAITING_MAX = 200
TEXT_CHARS_MAX = 500
FIELDS_MAX = 30
OWN_FIELDS = frozenset({"exc_info", "stack_info"})

Field = str | int | float | bool | None


class Warnings:
    """The warnings that wait. Any thread may log. Beyond WAITING_MAX they are only counted."""

    def __init__(self) -> None:
        self.waiting: deque[dict[str, Field]] = deque()
        self.dropped = 0
        self.levels: Counter[str] = Counter()

    def keep(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        """A processor of structlog, for after those that add level, time and process to the event."""
        if logging.getLevelNamesMapping().get(str(event.get("level", "")).upper(), 0) >= logging.WARNING:
            self.levels[str(event["level"])] += 1
            if len(self.waiting) < WAITING_MAX:
                self.waiting.append(_short(event))
            else:
                self.dropped += 1
        return event

    def take(self, most: int) -> list[dict[str, Field]]:
        """Remove and return the oldest ones, at most `most`."""
        return [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]

    def clear(self) -> None:
        """Forget all of them. A forked process calls this: they are its parent's."""
        self.waiting.clear()
        self.levels.clear()
        self.dropped = 0


def _short(event: EventDict) -> dict[str, Field]:
    """A copy that refers to no object of the event."""
    names = [name for name in event if not name.startswith("_") and name not in OWN_FIELDS][:FIELDS_MAX]
    return {**{name: _plain(event[name]) for name in names}, **_exception(event.get("exc_info"))}


def _plain(value: object) -> Field:
    match value:
        case bool() | int() | float() | None:
            return value
        case str():
            return value[:TEXT_CHARS_MAX]
        case BaseException():
            return type(value).__name__
        case _:
            return f"<{type(value).__name__}>"


def _exception(info: object) -> dict[str, Field]:
    """In the forms that loggers take: the exception, its triple, or true for the one that is being handled."""
    if isinstance(info, tuple):
        info = info[1]
    error = info if isinstance(info, BaseException) else sys.exception() if info is True else None
    if error is None:
        return {}
    frames = extract_tb(error.__traceback__, limit=-1)
    where = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno} {frames[-1].name}" if frames else None
    return {"exception": type(error).__name__, "where": where}


WARNINGS = Warnings()
"""This process's."""
