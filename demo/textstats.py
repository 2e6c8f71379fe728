"""The functions of the workflow textstats: the worker beside this file runs one in each step, `compute` runs all.

To print the numbers of a folder without the service: python -m penstock.demo.textstats FOLDER
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

SUFFIXES = (".md", ".py", ".txt")
CHUNK_BYTES = 64 * 1024
CHUNKS_MAX = 5000
TOP = 20

WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
HEADING = re.compile(r"^#{1,6}\s+\S", re.MULTILINE)
URL = re.compile(r"https?://[^\s<>\"'`)\]}]+")


class Text(NamedTuple):
    """A part of a document that consists of whole paragraphs."""

    path: str
    text: str

    @property
    def headings(self) -> int:
        return len(HEADING.findall(self.text)) if self.path.endswith(".md") else 0

    @property
    def lines(self) -> int:
        return self.text.count("\n") + (self.text != "" and not self.text.endswith("\n"))


def documents(source: str | list[str]) -> list[str]:
    """Return the documents of a folder in order, without hidden files, or the named files, each once.

    Raises FileNotFoundError.
    """
    paths = [source] if isinstance(source, str) else source
    found = list(dict.fromkeys(path for name in paths for path in _files(Path(name))))
    if not found:
        raise FileNotFoundError(f"no documents ({', '.join(SUFFIXES)}) in {', '.join(paths)}")
    return found


def split(paths: Iterable[str]) -> list[dict[str, Any]]:
    """Return ranges of bytes of whole paragraphs. Ranges are small enough for an output; the texts are not."""
    sizes = {path: os.path.getsize(path) for path in paths}
    wanted = max(CHUNK_BYTES, sum(sizes.values()) // CHUNKS_MAX)
    return [
        {"path": path, "start": start, "end": end}
        for path in sizes
        for start, end in _ranges(Path(path).read_bytes(), wanted)
    ]


def read(chunks: Iterable[dict[str, Any]]) -> Iterator[Text]:
    """Yield the text of each chunk."""
    for chunk in chunks:
        with open(chunk["path"], "rb") as file:
            file.seek(chunk["start"])
            yield Text(chunk["path"], _text(file.read(chunk["end"] - chunk["start"])))


def count_words(texts: Iterable[Text]) -> dict[str, Any]:
    """Return the number of words, the number of different words, and the most frequent words."""
    words = Counter(word for text in texts for word in WORD.findall(text.text.lower()))
    top = sorted(words.items(), key=lambda item: (-item[1], item[0]))[:TOP]
    return {"words": words.total(), "unique": len(words), "top": [list(item) for item in top]}


def count_lines(texts: Iterable[Text]) -> dict[str, Any]:
    """Return the number of documents, lines and characters."""
    paths, lines, characters = set(), 0, 0
    for text in texts:
        paths.add(text.path)
        lines, characters = lines + text.lines, characters + len(text.text)
    return {"documents": len(paths), "lines": lines, "characters": characters}


def count_links(texts: Iterable[Text]) -> dict[str, Any]:
    """Return the number of Markdown headings, of addresses, and of different addresses."""
    headings, urls = 0, Counter[str]()
    for text in texts:
        headings += text.headings
        urls.update(URL.findall(text.text))
    return {"headings": headings, "links": urls.total(), "unique_links": len(urls)}


def report(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return all numbers, and a text with them for people."""
    top = ", ".join(f"{word} {count}" for word, count in numbers["top"][:5])
    text = (
        f"{numbers['documents']} documents, {numbers['lines']} lines, {numbers['characters']} characters\n"
        f"{numbers['words']} words, {numbers['unique']} different; most frequent: {top}\n"
        f"{numbers['headings']} headings, {numbers['links']} links to {numbers['unique_links']} addresses"
    )
    return {**numbers, "text": text}


def compute(source: str | list[str]) -> dict[str, Any]:
    """Return the output of a whole run, computed from the documents without chunks."""
    texts = [Text(path, _text(Path(path).read_bytes())) for path in documents(source)]
    return report({**count_words(texts), **count_lines(texts), **count_links(texts)})


def _files(path: Path) -> list[str]:
    if not path.is_dir():
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist")
        return [str(path)]
    found = []
    for folder, subfolders, names in os.walk(path):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith((".", "__")))
        found += [os.path.join(folder, name) for name in sorted(names) if name.endswith(SUFFIXES)]
    return found


def _ranges(body: bytes, wanted: int) -> Iterator[tuple[int, int]]:
    """Cut after the first blank line beyond `wanted` bytes, so that no paragraph, word or character is cut in two."""
    start = 0
    while True:
        blank = body.find(b"\n\n", start + wanted)
        end = len(body) if blank < 0 else blank + 2
        yield start, end
        if end == len(body):
            return
        start = end


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace")


if __name__ == "__main__":
    print(json.dumps(compute(sys.argv[1] if len(sys.argv) > 1 else "."), indent=2))
