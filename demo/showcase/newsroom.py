"""The newsroom: its steps make galleries of photos small, and put the newsletter of the morning together.

By hand: python -m penstock.demo.showcase.newsroom
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from penstock.worker import Context, Continue, NonRetriable, Worker

BROKEN_EVERY = 333  # one photo in so many is not readable
DRAFT = (
    "Good morning. The harbour bridge is open again from noon. The council has agreed to plant four hundred trees "
    "along the old canal. And the rowing club has won in Ghent, by half a length."
)

worker = Worker(max_tasks=40, metadata={"demo": "newsroom", "room": "3.14"})


async def _takes(least_s: float, most_s: float) -> None:
    await asyncio.sleep(random.uniform(least_s, most_s))  # noqa: S311 - no secret


@worker.task("newsroom.list-photos")
async def list_photos(evening: dict[str, Any]) -> list[dict[str, Any]]:
    """The photos of an evening."""
    await _takes(0.2, 0.4)
    return [{"file": f"{evening['album']}-{number:04}.jpg", "number": number} for number in range(evening["photos"])]


@worker.task("newsroom.shrink")
async def shrink(photo: dict[str, Any]) -> dict[str, int]:
    """Make one photo small."""
    await _takes(0.1, 0.5)
    if photo["number"] % BROKEN_EVERY == BROKEN_EVERY - 1:
        raise NonRetriable(f"{photo['file']} ends in the middle of its data")
    return {"bytes": 40_000 + 17 * photo["number"]}


@worker.task("newsroom.album")
async def album(photos: list[dict[str, Any]], ctx: Context) -> dict[str, int]:
    """Lay the pages of an album out."""
    await _takes(0.4, 0.8)
    missing = sum(not photo["ok"] for photo in photos)
    if missing:
        ctx.log.warning("%d photos are missing", missing)
    return {"pages": -(-len(photos) // 12), "missing": missing}


@worker.task("newsroom.weather")
async def weather() -> dict[str, Any]:
    """What the sky will do."""
    await _takes(0.2, 0.6)
    return {"sky": "clouds, later sun", "degrees": 11}


@worker.task("newsroom.headlines")
async def headlines(letter: dict[str, str], ctx: Context) -> list[str]:
    """What has happened."""
    found = ["Bridge open again", "Four hundred trees", "Library until ten"]
    for headline in found:
        await _takes(0.2, 0.4)
        ctx.log(headline)
    return found


@worker.task("newsroom.sports")
async def sports(letter: dict[str, str], ctx: Context) -> list[str]:
    """The results; now and then nobody has called them in."""
    await _takes(0.3, 0.6)
    if ctx.run_id[-1] in "02468":
        raise NonRetriable("nobody has called the results in")
    return ["Rowing: won by half a length in Ghent"]


@worker.task("newsroom.yesterday")
async def yesterday(asked: dict[str, str]) -> list[str]:
    """What was printed yesterday, when a section is missing."""
    await _takes(0.1, 0.2)
    return [f"From yesterday's {asked['section']}: training at six"]


@worker.task("newsroom.write")
async def write(sections: dict[str, Any], ctx: Context) -> str:
    """The letter, word by word."""
    for word in DRAFT.split():
        ctx.stream(f"{word} ")
        await _takes(0.02, 0.08)
    return DRAFT


@worker.task("newsroom.proof-read")
async def proof_read(text: str, ctx: Context) -> str | Continue:
    """Read it again until nothing is found any more."""
    await _takes(0.4, 0.8)
    left = 2 - ctx.iteration
    ctx.log.info("found %d mistakes", max(left, 0))
    return Continue(text) if left > 0 else text


@worker.task("newsroom.send")
async def send(text: str) -> dict[str, int]:
    """To everybody who has subscribed."""
    await _takes(0.3, 0.6)
    return {"readers": 8_412, "characters": len(text)}


if __name__ == "__main__":
    worker.run()
