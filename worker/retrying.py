"""Waiting for a service that is away: what a task asks of it meanwhile takes longer, and does not fail."""

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
    """The answer, asked for again and again while the service gives none. What is asked must be safe to do twice."""

    async def again() -> T:  # a plain callable would have its coroutine taken for the answer
        return await ask()

    try:
        return await ask()
    except Unavailable:
        return await _AGAIN.copy()(again)
