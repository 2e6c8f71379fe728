"""Waiting for a state of the world that announces itself to nobody: asked again and again, within a bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

POLL_S = 0.01
PATIENCE_S = 30.0
T = TypeVar("T")


async def until(find: Callable[[], Awaitable[T]], patience_s: float = PATIENCE_S) -> T:
    """What `find` gives, as soon as that is true. Raises TimeoutError."""
    async with asyncio.timeout(patience_s):
        while not (found := await find()):  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(POLL_S)
        return found


def until_found(find: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """What `find` gives, as soon as that is true, for tests that block. Raises TimeoutError."""
    deadline = time.monotonic() + patience_s
    while not (found := find()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {patience_s:g} s")
        time.sleep(POLL_S)
    return found


async def until_true(holds: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Return as soon as it holds. Raises TimeoutError."""

    async def find() -> bool:
        return holds()

    await until(find, patience_s)
