"""The service over HTTP while it breaks: one try with a bound, or tries until there is an answer that counts."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import orjson
from load.client import address
from load.connection import Answer, LostError, Pool

ANSWER_S_MAX = 15.0
AGAIN_S = 0.3
FAILED, INTERNAL = 500, b"internal error"
# Only what is written into a run's history may be answered so: docs/http.md, not-written.
NOT_WRITTEN = re.compile(r"/runs/\w+/(cancel|pause|resume|rerun|signal/[^/]+|steps/[^/]+/(retry|skip))")
UNKNOWN = (500, 503)  # docs/http.md: of a write with such an answer nobody knows the outcome


class Heard:
    """What became of a request in the end. `doubted`: an earlier try had no answer that counts, and may have been
    carried out."""

    def __init__(self, answer: Answer, doubted: bool) -> None:
        self.status, self.body, self.headers, self.doubted = answer.status, answer.body, answer.headers, doubted

    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def said(self) -> Any:
        """The body: its value, or the text of one that is no JSON, which nobody expects."""
        try:
            return self.json()
        except orjson.JSONDecodeError:
            return self.body.decode(errors="replace")

    @property
    def text(self) -> str:
        return f"{self.status} {self.body[:200].decode(errors='replace').strip()}"


class Api:
    """Owned by the storm. `answers` counts them by method, words of the path, and status (0: none). `failed` are those
    of 500 that nothing allows."""

    def __init__(self, url: str) -> None:
        self._pool = Pool(*address(url))
        self.answers: Counter[tuple[str, str, int]] = Counter()
        self.failed: list[str] = []

    async def once(self, method: str, target: str, body: bytes = b"", headers: bytes = b"") -> Answer:
        """One try. Raises LostError without an answer."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                answer = await self._pool.request(method, target, body, headers)
        except TimeoutError as error:
            self._count(method, target, 0)
            raise LostError(f"no answer in {ANSWER_S_MAX:g} s") from error
        except LostError:
            self._count(method, target, 0)
            raise
        self._count(method, target, answer.status)
        if answer.status == FAILED and not may_fail(method, target, answer.body):
            self.failed.append(f"{method} {target} was answered 500 {answer.body[:200].decode(errors='replace')}")
        return answer

    async def insist(self, method: str, target: str, body: bytes = b"", headers: bytes = b"") -> Heard:
        """Try until there is an answer that counts; the caller sets the bound."""
        doubted = False
        while True:
            try:
                answer = await self.once(method, target, body, headers)
                if answer.status not in UNKNOWN:
                    return Heard(answer, doubted)
            except LostError:
                pass
            doubted = True
            await asyncio.sleep(AGAIN_S)

    async def ready(self) -> bool:
        try:
            return (await self.once("GET", "/ready")).status == 200
        except LostError:
            return False

    def close(self) -> None:
        self._pool.close()

    def _count(self, method: str, target: str, status: int) -> None:
        self.answers[method, _kind(target), status] += 1


def may_fail(method: str, target: str, body: bytes) -> bool:
    """Whether a request may be answered 500 with this text while the broker is away."""
    written = method == "POST" and NOT_WRITTEN.fullmatch(target.partition("?")[0]) is not None
    return written and not body.startswith(INTERNAL)


def _kind(target: str) -> str:
    """The first word of the path, and of a request about one of these the last."""
    words = target.partition("?")[0].split("/")[1:]
    return f"/{words[0]}" if len(words) == 1 or not words[-1].isalpha() else f"/{words[0]}/…/{words[-1]}"
