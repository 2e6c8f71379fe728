"""Looking after the store in rounds: what nobody waits for takes a small share of the time, however much there is to
look at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn

from penstock.config.logging import get_logger
from penstock.config.process.background import report
from penstock.engine.errors import PenstockError

SHARE_MAX = 0.005  # of the time may go into one kind of looking
PAGE = 500  # runs that are looked at between two rests

Rest = Callable[[], Awaitable[None]]
"""Called between two pieces of a round: it returns when the work so far has had its share of the time."""

log = get_logger()


async def rounds(name: str, look: Callable[[Rest], Coroutine[Any, Any, object]], every_s: float) -> NoReturn:
    """Look for ever, `every_s` after the last round, or later when there is so much to do. An error ends its round, and
    only that."""
    pace = _Pace(every_s)
    while True:
        await asyncio.sleep(max(every_s, pace.owed_s()))
        pace.begin()
        try:
            await look(pace.rest)
        except PenstockError as error:
            log.warning("round_waits", work=name, error=str(error))
        except Exception as error:
            report(name, error)


async def at_once() -> None:
    """A Rest for who wants a round done now."""


class _Pace:
    """Owned by `rounds`. Short pieces are done without a rest until what they owe is worth one."""

    def __init__(self, worth_s: float) -> None:
        self._worth_s = worth_s
        self._worked_s = 0.0
        self._since = time.monotonic()

    def begin(self) -> None:
        self._worked_s, self._since = 0.0, time.monotonic()

    def owed_s(self) -> float:
        """How long a rest the work since the last one is worth."""
        now = time.monotonic()
        self._worked_s, self._since = self._worked_s + now - self._since, now
        return self._worked_s / SHARE_MAX

    async def rest(self) -> None:
        owed_s = self.owed_s()
        if owed_s >= self._worth_s:
            await asyncio.sleep(owed_s)
            self.begin()
