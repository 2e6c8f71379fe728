"""What a system beside penstock is, and what it is while it runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

from .users import Load


class Skipped(Exception):
    """The system cannot be measured here; the text says why."""


class Running(NamedTuple):
    """`pids` are the processes of the system and of its worker now, without those of the users."""

    load: Load
    pids: Callable[[], frozenset[int]]


class System(NamedTuple):
    """`how` says in a sentence how it is set up. `start` takes a directory for its data, and raises Skipped."""

    name: str
    how: str
    start: Callable[[Path], AbstractAsyncContextManager[Running]]
