"""The supervisor: starts child processes, restarts those that die, and stops all of them in order."""

from __future__ import annotations

import gc
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
NOT_STARTED_S = 0.5  # until the next attempt, when the process could not be started at all
STOPPING = (signal.SIGTERM, signal.SIGINT)
STEADY_S = 10.0  # a child that lived this long is started again without delay

log = get_logger()


class Process(Protocol):
    """What multiprocessing.Process and `ChildProgram` (a child program) have in common here."""

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
    """One place in the process tree. Children of lower stages are stopped first; `grace_s` is from SIGTERM to SIGKILL.
    `problem` is why the last start failed."""

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
    """One thread, no event loop. `run` returns when a signal came and every child has ended."""

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
        gc.freeze()  # a collection in a forked child would write to all that was imported, and so copy its pages
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
            for number in STOPPING:  # a second signal would kill this process before it returns
                signal.signal(number, signal.SIG_IGN)

    def restart(self, names: Collection[str]) -> None:
        """Stop the children of these names, or all if none is given. Each is started again by `run`."""
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
        # Asked once: the sentinel of a child that ends meanwhile ends the wait.
        alive = [child for child in self._children if child.alive]
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
                self._note_death(child)
            elif child.start_again_at <= time.monotonic():
                self._start_again(child)

    def _note_death(self, child: Child) -> None:
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
        """SIGTERM stage by stage, SIGKILL to a child that does not end in its grace or by the deadline of all."""
        deadline = time.monotonic() + self._deadline_s
        for stage in sorted({child.stage for child in self._children}):
            group = [child for child in self._children if child.stage == stage and child.alive]
            for child in group:
                assert child.process is not None
                child.process.terminate()
            begin = time.monotonic()  # graces run side by side: else a few children that hang would use up the deadline
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
