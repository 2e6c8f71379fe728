"""A disk that takes no bytes any more: the files of the broker and its supervisor may grow no further for a while."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterable
from contextlib import suppress

from .installation import Installation
from .places import alive

LIMIT_BYTES = 1 << 20
WRITERS = ("broker", "serve")  # serve looks whether there is room
UNLIMITED = resource.RLIM_INFINITY


async def fill_disk(installation: Installation, seconds: float) -> bool:
    """Let nothing be written for so long. False: the broker does not run."""
    pids = [pid for role in WRITERS for pid in installation.pids(role)]
    if len(pids) < len(WRITERS):
        return False
    try:
        _limit(pids, LIMIT_BYTES)
        await asyncio.sleep(seconds)
    finally:
        _limit(_heirs(installation), UNLIMITED)
    return True


def _heirs(installation: Installation) -> list[int]:
    """The service and all that it has started: they have its limit."""
    serve = installation.serve.pid
    return [] if serve is None else [serve, *alive(serve)]


def _limit(pids: Iterable[int], most: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):  # it has just ended
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, UNLIMITED))
