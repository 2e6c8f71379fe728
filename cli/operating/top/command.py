"""`penstock top`: queues, workers, rates and held-up runs, live."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from penstock.cli.operating.top.keys import single_keys
from penstock.cli.operating.top.observing import Observation, Observer
from penstock.cli.operating.top.screen import ORDERS, Look, drawn, plain
from penstock.cli.terminal import output
from penstock.cli.terminal.session import JsonCommand, Session, as_json

if TYPE_CHECKING:
    from rich.console import Console, Group

KEY_S = 0.1
RATE_S = 1.0  # between the two looks of --once


@click.command(cls=JsonCommand)
@click.option("--once", is_flag=True, help="Print one screen; so does a pipe.")
@click.option(
    "--every",
    metavar="SECONDS",
    type=click.FloatRange(min=0.2),
    default=2.0,
    show_default=True,
    help="How often to look.",
)
@click.pass_obj
def top(session: Session, once: bool, every: float) -> None:
    """Watch the service: its queues, its workers, how much it does, and which runs are held up by what.

    Keys: q quits, s changes the order of the queues, r reverses it, space stops and goes on.
    """
    observer = Observer(session.client())
    seen = observer.observe()
    if seen.problem:
        session.client().health()  # raises what is wrong
    if once or as_json() or not sys.stdout.isatty():
        time.sleep(RATE_S)
        whole = observer.observe()
        output.show(whole, lambda: plain(whole, Look()))
    else:
        _watch(_Watch(observer, seen, every))


class _Watch:
    """Looks at the service in a thread of its own, so that keys are answered at once."""

    def __init__(self, observer: Observer, seen: Observation, every_s: float) -> None:
        self._observer, self._every_s = observer, every_s
        self.seen = seen
        self.paused = False
        self.failed: Exception | None = None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, name="top", daemon=True)

    def _run(self) -> None:
        try:
            while not self.stopped.wait(self._every_s):
                if not self.paused:
                    self.seen = self._observer.observe()
        except Exception as error:  # shown by the command, which ends then
            self.failed = error


def _watch(watch: _Watch) -> None:
    from rich import get_console
    from rich.live import Live

    console, look = get_console(), Look()
    watch.thread.start()
    try:
        with (
            single_keys() as key,
            Live(_screen(watch.seen, look, console), screen=True, auto_refresh=False, console=console) as live,
        ):
            shown: object = None
            while watch.failed is None:
                now = (watch.seen, look, console.size)
                if now != shown:
                    live.update(_screen(watch.seen, look, console), refresh=True)
                    shown = now
                pressed = key(KEY_S)
                if pressed == "q":
                    return
                look = _pressed(look, pressed)
                watch.paused = look.paused
        raise watch.failed
    finally:
        watch.stopped.set()
        watch.thread.join()


def _screen(seen: Observation, look: Look, console: Console) -> Group:
    return drawn(seen, look, console.size.width, console.size.height)


def _pressed(look: Look, key: str) -> Look:
    match key:
        case "s":
            orders = list(ORDERS)
            return replace(look, order=orders[(orders.index(look.order) + 1) % len(orders)])
        case "r":
            return replace(look, reverse=not look.reverse)
        case " ":
            return replace(look, paused=not look.paused)
        case _:
            return look
