"""Maintenance rounds: checks of the store that are repeated for ever, in a bounded share of the time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn

from penstock.config.logging import get_logger
from penstock.config.process.background import report
from penstock.engine.errors import PenstockError

SHARE_MAX = 0.005  # of the time may go into one kind of check, if nothing else is said
PAGE = 500  # runs that are checked between two calls of the throttle

Throttle = Callable[[], Awaitable[None]]
"""Called between two pieces of a round. It sleeps until the work done so far is within its share of the time."""

log = get_logger()


async def repeat_rounds(
    name: str,
    check: Callable[[Throttle], Coroutine[Any, Any, object]],
    every_s: float,
    latest_s: float = math.inf,
    share_max: Callable[[], float] | None = None,
    pause_s_min: float | None = None,
) -> NoReturn:
    """Run `check` for ever: `every_s` after the last round has ended, later after a round that took long, but at most
    `latest_s` later. It takes the share `share_max` of the time, which may change, SHARE_MAX by default. Its pauses
    take at least `pause_s_min`, `every_s` by default.

    An error ends its round only, and what was waited for in vain is no work. `name` labels the log event and the
    metric of failures.
    """
    share = _TimeShare(every_s if pause_s_min is None else pause_s_min, share_max)
    while True:
        await asyncio.sleep(max(every_s, min(share.sleep_due_s(), latest_s)))
        share.begin()
        try:
            await check(share.throttle)
        except PenstockError as error:
            log.warning("maintenance_round_failed", work=name, error=str(error))
            share.begin()
        except Exception as error:
            report(name, error)


async def unthrottled() -> None:
    """A Throttle that never sleeps: the round is done as fast as possible."""


class _TimeShare:
    """Measures the work of rounds and sleeps for it. Owned by `repeat_rounds`. Pieces of work whose sleep would be
    shorter than `sleep_s_min` are added up."""

    def __init__(self, sleep_s_min: float, share_max: Callable[[], float] | None = None) -> None:
        self._sleep_s_min, self._share_max = sleep_s_min, share_max
        self._due_s = 0.0
        self._since = time.monotonic()

    def begin(self) -> None:
        self._due_s, self._since = 0.0, time.monotonic()

    def sleep_due_s(self) -> float:
        """How long to sleep for the work since the last sleep, in s."""
        now, share = time.monotonic(), SHARE_MAX if self._share_max is None else self._share_max()
        self._due_s += (now - self._since) * (1 - share) / share
        self._since = now
        return self._due_s

    async def throttle(self) -> None:
        sleep_due_s = self.sleep_due_s()
        if sleep_due_s >= self._sleep_s_min:
            await asyncio.sleep(sleep_due_s)
            self.begin()
