"""The website of the shop: its steps lint, test, build and publish what was pushed to its repository.

By hand: python -m penstock.demo.showcase.site
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from penstock.worker import Context, NonRetriable, Worker

LOCKED_PULL = 1024  # a pull request that the host refuses to publish

worker = Worker(max_tasks=8, metadata={"demo": "site", "runner": "arm64"})


async def _takes(least_s: float, most_s: float) -> None:
    await asyncio.sleep(random.uniform(least_s, most_s))  # noqa: S311 - no secret


@worker.task("site.fetch")
async def fetch(push: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Get the files of a pull request."""
    await _takes(0.4, 0.8)
    ctx.log.info("fetched pull request %d", push["pull"], files=17)
    return {"commit": f"{random.getrandbits(28):07x}", "files": 17, "title": push.get("title")}


@worker.task("site.lint")
async def lint(tree: dict[str, Any]) -> dict[str, int]:
    """Look for what is written badly."""
    await _takes(0.7, 1.2)
    return {"warnings": random.randrange(4)}  # noqa: S311 - no secret


@worker.task("site.test")
async def test(asked: dict[str, Any], ctx: Context) -> dict[str, int]:
    """Run a suite of tests. Those in the browser fail now and then, as everywhere."""
    count = 40 if asked["suite"] == "unit" else 12
    for done in range(1, 5):
        await _takes(0.2, 0.4)
        ctx.progress(done * count // 4, count, "tests")
    if asked["suite"] == "browser" and ctx.attempt <= asked["pull"] % 3:
        ctx.log.error("test_basket_survives_a_reload has failed", attempt=ctx.attempt)
        raise AssertionError("test_basket_survives_a_reload: the page showed 0 goods in the basket, not 3")
    ctx.log.info("%d tests passed", count)
    return {"passed": count}


@worker.task("site.build")
async def build(tree: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Make what the browsers of customers get."""
    for line in ("resolving 212 packages", "bundling pages/basket", "bundling pages/checkout", "writing 38 files"):
        ctx.log(line)
        await _takes(0.3, 0.5)
    return {"bytes": 148_213, "files": 38}


@worker.task("site.publish")
async def publish(asked: dict[str, Any]) -> dict[str, str]:
    """Put the site where customers see it."""
    await _takes(0.3, 0.6)
    if asked["pull"] == LOCKED_PULL:
        raise NonRetriable("403 forbidden: the host has refused the token of publish-bot, which expired on 1 November")
    return {"url": f"https://shop.example/releases/{asked['pull']}"}


@worker.task("site.announce")
async def announce(published: dict[str, str]) -> dict[str, str]:
    """Say in the channel of the team that it is there."""
    await _takes(0.1, 0.3)
    return {"channel": "#site", "text": f"Now live: {published['url']}"}


if __name__ == "__main__":
    worker.run()
