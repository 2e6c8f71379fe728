"""Keys from a terminal, one at a time and without echo."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

CTRL_C = "\x03"


@contextmanager
def single_keys() -> Iterator[Callable[[float], str]]:
    """Yields a function that waits so many seconds for a key; it returns an empty text when none was pressed. The
    terminal is as before after the block."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield lambda wait_s: _key(descriptor, wait_s)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _key(descriptor: int, wait_s: float) -> str:
    ready, _, _ = select.select([descriptor], [], [], wait_s)
    if not ready:
        return ""
    pressed = os.read(descriptor, 32)
    return pressed.decode(errors="replace")[:1] if pressed else "q"  # the terminal has gone


def _no_key(wait_s: float) -> str:
    select.select([], [], [], wait_s)
    return ""
