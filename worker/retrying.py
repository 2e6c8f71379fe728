"""Repeats a request while the service is unavailable, with exponential waits from 50 ms to 2 s: a task waits, it does
not fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from penstock.engine.errors import Unavailable

T = TypeVar("T")

_AGAIN = AsyncRetrying(
    retry=retry_if_exception_type(Unavailable), wait=wait_random_exponential(0.05, 2.0), reraise=True
)


async def retry_until_available(ask: Callable[[], Awaitable[T]]) -> T:
    """The result of `ask`, which is called again after each Unavailable. Repeating it must be safe."""

    async def again() -> T:  # a plain callable would have its coroutine taken for the answer
        return await ask()

    try:
        return await ask()
    except Unavailable:
        return await _AGAIN.copy()(again)
