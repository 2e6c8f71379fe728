"""Memory that this process does not use goes back to the system. By itself the C library keeps it, for objects lie scattered."""

from __future__ import annotations

import ctypes

_LIBRARY = ctypes.CDLL(None)


def give_back() -> None:
    """Return free pages to the system: a few ms for each 100 MB. A C library that knows no such thing returns nothing."""
    trim = getattr(_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(0)
