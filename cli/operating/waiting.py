"""The sentences that say why a run waits: beside its state, and while a command waits for its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from penstock.cli.terminal import output
from penstock.cli.terminal.session import Session
from penstock.engine.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.client.views import RunView
    from penstock.engine.waiting.reasons import WaitingReason

QUIET_S = 2.0  # without progress for so long, who waits is told why
AGAIN_S = 1.0


def sentences(client: Client, run_id: str) -> list[WaitingReason]:
    """Why the run waits; empty where the service cannot say it."""
    try:
        return client.explain(run_id).waiting
    except PenstockError:
        return []


def show(waiting: list[WaitingReason]) -> None:
    """One line for each reason, after an empty one."""
    if waiting:
        click.echo()
    for one in waiting:
        click.echo(f"waits: {output.printable(one.text)}")


class ShownReasons:
    """Which reasons were shown already: each change is shown once."""

    def __init__(self) -> None:
        self._shown: frozenset[tuple[str | None, str]] = frozenset()

    def new(self, waiting: list[WaitingReason]) -> list[WaitingReason]:
        """Those that were not among the last ones."""
        before = self._shown
        self._shown = frozenset((one.step_id, one.reason) for one in waiting)
        return [one for one in waiting if (one.step_id, one.reason) not in before]


class WaitingNotes:
    """For a live view: the reasons of a run that has not changed for QUIET_S, read once a second."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._changed_at = self._read_at = time.monotonic()
        self._steps: object = None
        self._waiting: list[WaitingReason] = []

    def texts(self, run: RunView) -> list[str]:
        """The sentences to show below this state of the run."""
        return [f"waits: {output.printable(one.text)}" for one in self._see(run)]

    def _see(self, run: RunView) -> list[WaitingReason]:
        now, steps = time.monotonic(), [(step.status, step.attempts) for step in run.steps.values()]
        if steps != self._steps:
            self._steps, self._changed_at, self._waiting = steps, now, []
        elif now - self._changed_at >= QUIET_S and now - self._read_at >= AGAIN_S:
            self._read_at, self._waiting = now, sentences(self._client, run.run_id)
        return self._waiting


@contextmanager
def explaining(session: Session, run_id: str) -> Iterator[Callable[[], None]]:
    """Print on stderr why the run waits, for the time of the block: when there was no progress for QUIET_S, and when
    the reason changes. Yields what is called at each progress."""
    watcher = _Watcher(session, run_id)
    thread = threading.Thread(target=watcher.run, name="explaining", daemon=True)
    thread.start()
    try:
        yield watcher.progress
    finally:
        watcher.stopped.set()
        thread.join()


class _Watcher:
    """In a thread of its own: the command itself waits for events."""

    def __init__(self, session: Session, run_id: str) -> None:
        self._session, self._run_id = session, run_id
        self._changes, self._moved_at = ShownReasons(), time.monotonic()
        self.stopped = threading.Event()

    def progress(self) -> None:
        self._moved_at = time.monotonic()

    def run(self) -> None:
        from penstock.client import Client

        with Client(self._session.url, self._session.token) as client:
            while not self.stopped.wait(self._quiet_in_s()):
                if self._quiet_in_s() > AGAIN_S:
                    continue
                for one in self._changes.new(sentences(client, self._run_id)):
                    click.echo(f"waits: {output.printable(one.text)}", err=True)

    def _quiet_in_s(self) -> float:
        return max(AGAIN_S, self._moved_at + QUIET_S - time.monotonic())
