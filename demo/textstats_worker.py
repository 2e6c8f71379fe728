"""The worker of the demo workflow (textstats.json): it reads the documents of a folder and counts their contents.

`penstock demo` starts it. By hand: python -m penstock.demo.textstats_worker, then
penstock run start textstats --input '{"path": "docs"}', from the folder in which the worker was started.
"""

from __future__ import annotations

from typing import Any

from penstock.demo import textstats
from penstock.worker import NonRetriable, Worker

worker = Worker(metadata={"demo": "textstats"})


@worker.task("text.split")
def split(value: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        return textstats.split(textstats.documents(value["path"]))
    except FileNotFoundError as error:
        raise NonRetriable(str(error)) from error


@worker.task("text.words")
def words(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    return textstats.count_words(textstats.read(chunks))


@worker.task("text.lines")
def lines(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    return textstats.count_lines(textstats.read(chunks))


@worker.task("text.links")
def links(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    return textstats.count_links(textstats.read(chunks))


@worker.task("text.merge")
async def merge(counts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {**counts["words"], **counts["lines"], **counts["links"]}


@worker.task("text.report")
async def report(numbers: dict[str, Any]) -> dict[str, Any]:
    return textstats.report(numbers)


if __name__ == "__main__":
    worker.run()
