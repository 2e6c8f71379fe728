"""Watching what the embedded broker stores on: when that does not work, everybody is told, and it is repaired as soon
as it can be.

A broker whose write failed has to be started again, once the disk takes bytes: all that it acknowledged is in its
files. What was removed from the disk is lost, and its runs with it; the service then begins anew, and says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection

from penstock.broker.embedded.server import EmbeddedBroker
from penstock.broker.streams.storage import stopped
from penstock.config.logging import get_logger
from penstock.config.process.notice import Notice
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import PenstockError

LOOK_S = 5.0
TROUBLED_S = 0.5
SETTLED_S = 1.0  # that the disk must take bytes again: one that is full but for moments would stop the next broker, too
GONE_S = 3.0  # until what was moved away by mistake counts as removed
BROKER = "broker"

log = get_logger()


class StorageGuard:
    """Owned by the supervisor's process, which calls `watch` between its waits."""

    def __init__(
        self,
        broker: EmbeddedBroker,
        settings: BrokerSettings,
        notice: Notice,
        restart: Callable[[Collection[str]], None],
    ) -> None:
        """`settings` lead to the broker. `restart` ends children and has them started again: those of these names, or
        all."""
        self._broker, self._settings, self._notice, self._restart = broker, settings, notice, restart
        self._next_look = 0.0
        self._since: float | None = None
        self._room_since: float | None = None
        self._told = ""

    def watch(self) -> float:
        """Look if it is time to, and do what is needed; returns when next, in s."""
        now = time.monotonic()
        if now < self._next_look:
            return self._next_look - now
        self._look()
        pause_s = LOOK_S if self._since is None else TROUBLED_S
        self._next_look = time.monotonic() + pause_s
        return pause_s

    def _look(self) -> None:
        if self._broker.data.gone():
            self._begin_anew()
        elif not self._broker.running:
            self._wait_for_room()
        elif problem := self._stopped():
            self._repair(f"the broker's storage takes nothing: {problem}")
        elif problem is not None:
            self._over()

    def _stopped(self) -> str | None:
        """Why the broker stores nothing, empty when it does; None: nobody knows, for it gives no answer."""
        try:
            return asyncio.run(stopped(self._settings)) or ""
        except (PenstockError, OSError):
            return None

    def _wait_for_room(self) -> None:
        """It died, or was never started again: the supervisor tries, and this says why it cannot."""
        problem = self._broker.data.problem()
        if problem:
            self._tell(problem)

    def _repair(self, problem: str) -> None:
        self._tell(problem)
        if self._has_room():
            self._room_since = None
            self._restart((BROKER,))

    def _has_room(self) -> bool:
        """Whether the disk has taken bytes for a while, whenever somebody tried."""
        if self._broker.data.problem() is not None:
            self._room_since = None
            return False
        if self._room_since is None:
            self._room_since = time.monotonic()
        return time.monotonic() - self._room_since >= SETTLED_S

    def _begin_anew(self) -> None:
        """What the shards and front ends know is of runs that are not there any more: all of them are started again."""
        data = self._broker.data
        self._tell(data.misplaced() or f"the data directory {data.path} was removed: all that was stored in it is lost")
        assert self._since is not None
        if not data.misplaced() and time.monotonic() - self._since >= GONE_S:
            log.error(
                "data_lost",
                data_dir=str(data.path),
                hint="workflows and runs are gone; the service begins with an empty store",
            )
            data.give_up()
            self._restart(())

    def _tell(self, problem: str) -> None:
        """Once for each trouble, however many streams and words it has."""
        if self._since is None:
            self._since = time.monotonic()
            log.error("storage_takes_nothing", problem=problem, data_dir=str(self._broker.data.path))
        if problem != self._told:
            self._told = problem
            self._notice.say(problem)

    def _over(self) -> None:
        if self._since is not None:
            log.info("storage_works_again", after_s=round(time.monotonic() - self._since, 1))
            self._since, self._room_since, self._told = None, None, ""
            self._notice.say("")
