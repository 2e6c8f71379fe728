"""The answers of the broker to what was sent without waiting."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from penstock.config.process.crash_points import reached

T = TypeVar("T")


def sent(answer: T) -> T:
    """Note that a command is sent, whose answer this is."""
    reached("shard.command_sent")
    return answer


async def stored(answers: list[asyncio.Future[bytes] | None]) -> None:
    """Return once the broker has stored all that was sent so far, and empty the list."""
    for answer in answers:
        if answer is not None:
            await is_stored(answer)
    answers.clear()


async def is_stored(answer: asyncio.Future[bytes]) -> bytes:
    """The broker's answer, once it has stored this."""
    found = await answer
    reached("shard.command_stored")
    return found
