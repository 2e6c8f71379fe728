"""The supervisor: starts child processes, starts those again that die, and ends all of them in order."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from types import FrameType
from typing import Protocol

from penstock.actors.telemetry.relay import Relay
from penstock.config.logging import get_logger

BACKOFF_S_MIN = 0.1
BACKOFF_S_MAX = 5.0
NOT_STARTED_S = (
    0.5  # until another attempt, when nothing was started at all: that costs nothing, and soon may be possible
)
STOPPING = (signal.SIGTERM, signal.SIGINT)
STEADY_S = 10.0  # a child that lived this long is started again without delay

log = get_logger()


class Process(Protocol):
    """What multiprocessing.Process and `Command` (a child program) have in common here."""

    @property
    def pid(self) -> int | None: ...
    @property
    def exitcode(self) -> int | None: ...
    @property
    def sentinel(self) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def join(self, timeout: float | None = None) -> None: ...


@dataclass
class Child:
    """One place in the process tree. `stage` orders the end: lower stages end first. `grace_s` is until SIGKILL.
    `problem` is why it could not be started the last time."""

    name: str
    start: Callable[[], Process]
    stage: int
    grace_s: float
    process: Process | None = None
    started_at: float = 0.0
    start_again_at: float = 0.0
    backoff_s: float = field(default=BACKOFF_S_MIN)
    problem: str = ""

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.exitcode is None


class Supervisor:
    """Plain and small: one thread, no event loop. `run` returns once a signal came and every child has ended."""

    def __init__(self, children: Sequence[Child], deadline_s: float, relay: Relay) -> None:
        self._children, self._deadline_s, self._relay = children, deadline_s, relay
        relay.name([child.name for child in children])
        self._stopping = False
        self._wakeup, self._waker = os.pipe()
        os.set_blocking(self._waker, False)

    def run(self, *watches: Callable[[], float | None]) -> None:
        """Keep every child alive until SIGTERM or SIGINT. Each of `watches` is called between waits, and says when next
        (s, or None)."""
        for number in STOPPING:
            signal.signal(number, self._stop)
        try:
            for child in self._children:
                if not self._stopping:
                    self._start(child)
            while not self._stopping:
                self._wait(min((next_s for watch in watches if (next_s := watch()) is not None), default=None))
                self._revive()
                self._relay.pass_on()
        finally:
            self._end()
            for (
                number
            ) in STOPPING:  # this process has nothing left to stop, and would die of another one on its way out
                signal.signal(number, signal.SIG_IGN)

    def restart(self, names: Collection[str]) -> None:
        """End the children of these names, all of them if none is given, and have each started again when they have
        ended."""
        group = [child for child in self._children if child.alive and (not names or child.name in names)]
        begin = time.monotonic()
        for child in group:
            assert child.process is not None
            child.process.terminate()
        for child in group:
            assert child.process is not None
            wait([self._wakeup, child.process.sentinel], max(0.0, begin + child.grace_s - time.monotonic()))
            if self._stopping:
                return
            self._await_end(child, time.monotonic())
            child.process, child.start_again_at, child.backoff_s = None, 0.0, BACKOFF_S_MIN

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        os.write(self._waker, b"x")

    def _start(self, child: Child) -> None:
        child.process = child.start()
        child.started_at = time.monotonic()
        log.info("process_started", name=child.name, child=child.process.pid)

    def _wait(self, timeout_s: float | None) -> None:
        """Until a child ends, a signal comes, or the time is over; at once when a child is to be started."""
        alive = [
            child for child in self._children if child.alive
        ]  # asked once: one that ends meanwhile shows by its sentinel
        due = [child.start_again_at for child in self._children if child not in alive]
        if due:
            until = max(0.0, min(due) - time.monotonic())
            timeout_s = until if timeout_s is None else min(timeout_s, until)
        wait([self._wakeup, *(child.process.sentinel for child in alive if child.process)], timeout_s)

    def _revive(self) -> None:
        for child in self._children:
            if child.alive or self._stopping:
                continue
            if child.process is not None:
                self._bury(child)
            elif child.start_again_at <= time.monotonic():
                self._start_again(child)

    def _bury(self, child: Child) -> None:
        assert child.process is not None
        log.error("process_died", name=child.name, code=child.process.exitcode)
        steady = time.monotonic() - child.started_at > STEADY_S
        child.backoff_s = BACKOFF_S_MIN if steady else min(child.backoff_s * 2, BACKOFF_S_MAX)
        child.start_again_at = time.monotonic() + (0.0 if steady else child.backoff_s)
        child.process = None

    def _start_again(self, child: Child) -> None:
        try:
            self._start(child)
        except Exception as error:
            if str(error) != child.problem:
                log.error("process_not_started", name=child.name, error=str(error))
            child.problem = str(error)
            child.start_again_at = time.monotonic() + NOT_STARTED_S
        else:
            child.problem = ""
            self._relay.restarted(child.name)

    def _end(self) -> None:
        """SIGTERM stage by stage, SIGKILL for what does not end in its grace or by the deadline of all."""
        deadline = time.monotonic() + self._deadline_s
        for stage in sorted({child.stage for child in self._children}):
            group = [child for child in self._children if child.stage == stage and child.alive]
            for child in group:
                assert child.process is not None
                child.process.terminate()
            begin = time.monotonic()  # their graces run side by side, or a few that hang would use up everybody's time
            for child in group:
                self._await_end(child, min(deadline, begin + child.grace_s))
        log.info("stopped")

    def _await_end(self, child: Child, until: float) -> None:
        assert child.process is not None
        child.process.join(max(0.0, until - time.monotonic()))
        if child.alive:
            log.error("process_killed", name=child.name)
            child.process.kill()
            child.process.join(1.0)
