"""The answers of the broker to what was sent without waiting."""

from __future__ import annotations

import asyncio

from penstock.config.process.crash_points import reached


async def stored(answers: list[asyncio.Future[bytes] | None]) -> None:
    """Return once the broker has stored all that was sent so far, and empty the list."""
    for answer in answers:
        if answer is not None:
            await answer
            reached("shard.command_stored")
    answers.clear()
