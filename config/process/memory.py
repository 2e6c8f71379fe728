"""When garbage is collected, and the return of unused memory to the system: the C library keeps it by itself, because
objects are scattered over it."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_LIBRARY = ctypes.CDLL(None)
THRESHOLD_DEFAULT, THRESHOLD_SELDOM = 700, 20_000  # objects


def give_back(*, thoroughly: bool = False) -> None:
    """Return free pages to the system, which takes a few ms for each 100 MB. Does nothing where the C library cannot.

    `thoroughly`: the interpreter first empties its lists of free objects, each of which may hold a whole arena. That
    takes about 1 ms for each 1,000 objects that are in use.
    """
    if thoroughly:
        gc.collect()
    trim = getattr(_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage within the block, for imports: they make none, and looking for it takes a sixth of their
    time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Within the block, look for garbage seldom, and never among what is there already: for a program that is loaded
    and begins its work, most of whose objects go without it. A program that has set a threshold keeps it."""
    young, *older = gc.get_threshold()
    if young == THRESHOLD_DEFAULT:
        gc.set_threshold(THRESHOLD_SELDOM, *older)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(young, *older)
