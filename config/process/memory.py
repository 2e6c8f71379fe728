"""Memory that this process does not use goes back to the system. By itself the C library keeps it, for objects lie
scattered."""

from __future__ import annotations

import ctypes
import gc

_LIBRARY = ctypes.CDLL(None)


def give_back(*, thoroughly: bool = False) -> None:
    """Return free pages to the system: a few ms for each 100 MB. A C library that knows no such thing returns nothing.

    Thoroughly, the interpreter first empties its lists of free objects, each of which may hold a whole arena: about 1
    ms for each 1,000 objects that are in use.
    """
    if thoroughly:
        gc.collect()
    trim = getattr(_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)
