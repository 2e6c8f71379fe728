"""The laboratory: an agent that plans and writes, and instruments that measure samples.

The agent's language model is a list of sentences, so that it needs no key.
By hand: python -m penstock.demo.showcase.lab
"""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any

from penstock.worker import Context, Worker

SENTENCES = (
    "Dams hold water back, and gates decide how much of it goes on.",
    "Three of the sources agree that a gate which opens slowly saves the wheel behind it.",
    "One of them measured it: at a quarter of the speed, wear falls by half.",
    "None has looked at ice, so for winters the answer is open.",
)

worker = Worker(max_tasks=12, metadata={"demo": "lab", "bench": "north"})


async def _takes(least_s: float, most_s: float) -> None:
    await asyncio.sleep(random.uniform(least_s, most_s))  # noqa: S311 - no secret


@worker.task("lab.question")
async def question(asked: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Read what was asked, and find what it is about."""
    await _takes(0.2, 0.5)
    topics = asked.get("topics") or ["gates", "wear", "ice"]
    ctx.log.info("the question has %d topics", len(topics), topics=topics)
    return {"question": asked["question"], "topics": topics}


@worker.task("lab.plan")
async def plan(found: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Which sources to read for each topic, and that they are compared at the end. The first plan of some questions
    has a mistake, which the service reports back."""
    for word in f"I search for {', '.join(found['topics'])}, read what I find, and compare it.".split():
        ctx.stream(f"{word} ")
        await _takes(0.04, 0.1)
    searches = [{"id": f"search-{topic}", "task": "lab.search", "with": {"topic": topic}} for topic in found["topics"]]
    reads = [
        {"id": f"read-{topic}", "task": "lab.read", "depends_on": [f"search-{topic}"]} for topic in found["topics"]
    ]
    compare = {"id": "compare", "task": "lab.compare", "depends_on": [step["id"] for step in reads]}
    if len(found["topics"]) > 3 and ctx.previous_error is None:
        compare["task"] = "lab.guess"  # not among the tasks that the planner may use
    return {"steps": [*searches, *reads, compare]}


@worker.task("lab.search")
async def search(asked: dict[str, str], ctx: Context) -> dict[str, Any]:
    """Look for sources."""
    await _takes(0.5, 1.5)
    hits = random.randrange(3, 30)  # noqa: S311 - no secret
    ctx.log.info("%d hits for %s", hits, asked["topic"])
    return {"topic": asked["topic"], "hits": hits}


@worker.task("lab.read")
async def read(found: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Read the sources, page by page."""
    pages = 4 + found["hits"] // 6
    for page in range(1, pages + 1):
        await _takes(0.2, 0.5)
        ctx.progress(page, pages, "pages")
        ctx.log.info("read page %d of %d", page, pages, topic=found["topic"])
    return {"topic": found["topic"], "pages": pages}


@worker.task("lab.compare")
async def compare(readings: Any) -> dict[str, Any]:
    """What the sources agree about."""
    await _takes(0.5, 1.0)
    return {"agree": 3, "disagree": 1}


@worker.task("lab.write")
async def write(value: Any, ctx: Context) -> dict[str, Any]:
    """The report, token by token."""
    text = " ".join(SENTENCES)
    words = re.findall(r"\S+\s*", text)
    for done, word in enumerate(words, 1):
        ctx.stream(word)
        ctx.progress(done, len(words), "words")
        await _takes(0.05, 0.15)
    ctx.log.info("wrote %d words", len(words), model="a list of sentences")
    return {"report": text}


@worker.task("lab.register")
async def register(sample: dict[str, Any]) -> dict[str, Any]:
    """Give a sample its place."""
    await _takes(0.2, 0.4)
    return {"sample": sample["sample"], "rack": f"R{random.randrange(1, 9)}"}  # noqa: S311 - no secret


@worker.task("lab.measure")
async def measure(asked: dict[str, str], ctx: Context) -> dict[str, Any]:
    """Put the sample under an instrument."""
    for done in range(0, 101, 20):
        ctx.progress(done, 100, "%")
        await _takes(0.2, 0.6)
    ctx.log.info("measured by %s", asked["by"])
    return {"by": asked["by"], "value": round(random.gauss(7.2, 0.3), 3)}


@worker.task("lab.result")
async def result(measured: Any) -> dict[str, Any]:
    """Both values side by side."""
    await _takes(0.1, 0.3)
    return {"measured": measured, "plausible": True}


if __name__ == "__main__":
    worker.run()
