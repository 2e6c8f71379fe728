"""Keeping a library from importing another one that it does not need."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast


@contextmanager
def not_imported(name: str) -> Iterator[None]:
    """Have imports of this package fail within the block, as if it were not installed, unless it is imported already.
    For what a library imports only if it is there."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = cast(ModuleType, None)
    try:
        yield
    finally:
        del sys.modules[name]
