"""A rate-limited log, for warnings that thousands of runs may cause at once, as when the broker is away."""

from __future__ import annotations

import time
from collections import Counter
from typing import Literal

from penstock.config.logging import EventLog

EVERY_S = 5.0

_quiet_until: dict[tuple[str, str], float] = {}
_suppressed: Counter[tuple[str, str]] = Counter()


def log_rate_limited(
    log: EventLog, event: str, level: Literal["warning", "error"] = "warning", of: str = "", **fields: object
) -> None:
    """Log an event at most once in EVERY_S for each pair of `event` and `of`.

    The next one that is logged has a field `suppressed`: how many were not logged in between. `event` and `of` are
    constants of the code, never data: each pair stays in memory.
    """
    now, key = time.monotonic(), (event, of)
    if now < _quiet_until.get(key, -EVERY_S):
        _suppressed[key] += 1
        return
    _quiet_until[key] = now + EVERY_S
    suppressed = _suppressed.pop(key, 0)
    write = log.error if level == "error" else log.warning
    write(event, **fields, **({"suppressed": suppressed} if suppressed else {}))


def reset() -> None:
    """Forget what was logged. A forked process calls this: the counts are its parent's."""
    _quiet_until.clear()
    _suppressed.clear()
