"""Warnings for which thousands may have reason in the same moment, as all runs have while the broker is away: each is
told now and then."""

from __future__ import annotations

import time
from collections import Counter
from typing import Literal

from penstock.config.logging import EventLog

EVERY_S = 5.0

_quiet_until: dict[tuple[str, str], float] = {}
_unsaid: Counter[tuple[str, str]] = Counter()


def sparingly(
    log: EventLog, event: str, level: Literal["warning", "error"] = "warning", of: str = "", **fields: object
) -> None:
    """Log an event unless one of this name (and `of` the same) was logged less than EVERY_S ago; `unsaid` tells how
    many were not, since.

    Both are names out of the code, never made up of data: each pair is remembered.
    """
    now, key = time.monotonic(), (event, of)
    if now < _quiet_until.get(key, -EVERY_S):
        _unsaid[key] += 1
        return
    _quiet_until[key] = now + EVERY_S
    unsaid = _unsaid.pop(key, 0)
    tell = log.error if level == "error" else log.warning
    tell(event, **fields, **({"unsaid": unsaid} if unsaid else {}))


def forget() -> None:
    """Begin anew: in a forked process, what is here is another's."""
    _quiet_until.clear()
    _unsaid.clear()
