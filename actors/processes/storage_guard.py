"""Checks the storage of the embedded broker: a problem is logged and shown by /health, and repaired when possible.

A broker whose write failed must be restarted once the disk takes bytes again: all that it acknowledged is in its files.
If the data directory was removed, its runs are lost; the service then starts with an empty store and logs an error.
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

CHECK_S = 5.0
PROBLEM_CHECK_S = 0.5  # while there is a problem
SETTLED_S = 1.0  # the disk must take bytes for so long before the broker is restarted
GONE_S = 3.0  # the data directory must be away for so long to count as removed
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
        self._next_check = 0.0
        self._since: float | None = None
        self._room_since: float | None = None
        self._shown = ""

    def watch(self) -> float:
        """Check if it is time to, and repair. Returns in how many s to call it again."""
        now = time.monotonic()
        if now < self._next_check:
            return self._next_check - now
        self._check()
        pause_s = CHECK_S if self._since is None else PROBLEM_CHECK_S
        self._next_check = time.monotonic() + pause_s
        return pause_s

    def _check(self) -> None:
        if self._broker.data.gone():
            self._start_empty()
        elif not self._broker.running:
            self._wait_for_room()
        elif problem := self._stopped():
            self._repair(f"the broker stores nothing: {problem}")
        elif problem is not None:
            self._report_end()

    def _stopped(self) -> str | None:
        """Why the broker stores nothing; empty when it does, None when it does not answer."""
        try:
            return asyncio.run(stopped(self._settings)) or ""
        except (PenstockError, OSError):
            return None

    def _wait_for_room(self) -> None:
        """The broker is not running, and the supervisor restarts it: report a full disk, which prevents that."""
        problem = self._broker.data.problem()
        if problem:
            self._report(problem)

    def _repair(self, problem: str) -> None:
        self._report(problem)
        if self._has_room():
            self._room_since = None
            self._restart((BROKER,))

    def _has_room(self) -> bool:
        """Whether the disk has taken bytes at every attempt for SETTLED_S."""
        if self._broker.data.problem() is not None:
            self._room_since = None
            return False
        if self._room_since is None:
            self._room_since = time.monotonic()
        return time.monotonic() - self._room_since >= SETTLED_S

    def _start_empty(self) -> None:
        """Restart all children with an empty store: shards and front ends have runs in memory that are lost."""
        data = self._broker.data
        self._report(
            data.misplaced() or f"the data directory {data.path} was removed: all that was stored in it is lost"
        )
        assert self._since is not None
        if not data.misplaced() and time.monotonic() - self._since >= GONE_S:
            log.error(
                "data_lost",
                data_dir=str(data.path),
                hint="workflows and runs are gone; the service begins with an empty store",
            )
            data.give_up()
            self._restart(())

    def _report(self, problem: str) -> None:
        """Log a problem once until it is over; show its latest text in /health."""
        if self._since is None:
            self._since = time.monotonic()
            log.error("storage_not_writable", problem=problem, data_dir=str(self._broker.data.path))
        if problem != self._shown:
            self._shown = problem
            self._notice.say(problem)

    def _report_end(self) -> None:
        if self._since is not None:
            log.info("storage_writable_again", after_s=round(time.monotonic() - self._since, 1))
            self._since, self._room_since, self._shown = None, None, ""
            self._notice.say("")
