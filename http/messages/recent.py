"""Answers that many ask for at the same time: each is made once, and who may get an older one gets it.

An answer that a request starts to wait for is never older than the request, unless the request allows it by
`Cache-Control: max-age`. So many open consoles cost about as much as one.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from falcon import HTTP_304
from falcon.asgi import Request, Response
from msgspec import Struct

from penstock.config.limits import ANSWER_AGE_S_MAX, ANSWERS_KEPT_BYTES_MAX
from penstock.config.process.background import start
from penstock.http.messages.callers import caller_of
from penstock.http.messages.params import MIN_SEQ

MAX_AGE = re.compile(r"(?:^|[\s,])max-age=([0-9]{1,9})(?:$|[\s,])")
KEPT_MAX = 500


class Made(Struct, frozen=True):
    """The body of an answer of 200 and its headers, besides those that all answers have."""

    body: bytes
    headers: Mapping[str, str] = {}

    @property
    def tag(self) -> str:
        """Differs for another body or another next page."""
        return blake2b(self.body + self.headers.get("Link", "").encode(), digest_size=12).hexdigest()


class _Question(NamedTuple):
    """What an answer depends on, besides the state of the service."""

    path: str
    query: str
    min_seq: str
    workflows: str | None


class _Answer(NamedTuple):
    """`begun` is when somebody began to make it (monotonic, s)."""

    begun: float
    made: asyncio.Task[tuple[Made, str]]

    @property
    def has_failed(self) -> bool:
        return self.made.done() and (self.made.cancelled() or self.made.exception() is not None)


class RecentAnswers:
    """Answers to GET requests, owned by the responder of a path whose answers depend on the caller's workflows only.
    Those that were asked for with an age are kept in memory, for 10 s and within 16 MB."""

    def __init__(self) -> None:
        self._answers: dict[_Question, _Answer] = {}

    async def give(self, req: Request, resp: Response, make: Callable[[], Awaitable[Made]]) -> None:
        """Answer with what `make` returns, or has returned within the age that the request allows; 304 for a client
        that has the same. Raises as `make`."""
        age_s = age_allowed(req)
        asked = _Question(req.path, req.query_string, req.get_header(MIN_SEQ) or "", caller_of(req).workflows)
        answer = await self._answer(asked, age_s, make)
        made, tag = answer.made.result()
        resp.set_headers(dict(made.headers))
        resp.etag, resp.cache_control = tag, ("private", "no-cache")
        if age_s:
            resp.set_header("Age", str(int(time.monotonic() - answer.begun)))
        if any(tag == known or known == "*" for known in req.if_none_match or ()):
            resp.status = HTTP_304
        else:
            resp.data = made.body

    async def _answer(self, asked: _Question, age_s: float, make: Callable[[], Awaitable[Made]]) -> _Answer:
        """The newest answer, when it has been made. One that somebody began to make too early is waited for, so that
        those who come meanwhile share the next one."""
        since = time.monotonic() - age_s
        while (answer := self._answers.get(asked)) is not None:
            is_old = answer.begun < since or answer.has_failed  # before this request: it is no answer to it
            if is_old and answer.made.done():
                break
            if not answer.made.done():
                await asyncio.wait([answer.made])
            if not is_old:
                return answer
        return await self._begin(asked, age_s, make)

    async def _begin(self, asked: _Question, age_s: float, make: Callable[[], Awaitable[Made]]) -> _Answer:
        # a task of its own: whoever asked first may go away
        task = start(_tagged(make), name="answer", expected=Exception)
        answer = self._answers[asked] = _Answer(time.monotonic(), task)
        await asyncio.wait([task])
        if self._answers.get(asked) is answer and (age_s == 0 or answer.has_failed):
            del self._answers[asked]
        self._drop()
        return answer

    def _drop(self) -> None:
        """Forget answers that are too old for everybody, and the oldest of too many or too large ones."""
        before, size = time.monotonic() - ANSWER_AGE_S_MAX, 0
        done = [(asked, one) for asked, one in self._answers.items() if one.made.done()]
        for number, (asked, one) in enumerate(sorted(done, key=lambda each: -each[1].begun)):
            size += 0 if one.has_failed else len(one.made.result()[0].body)
            if one.begun < before or number >= KEPT_MAX or size > ANSWERS_KEPT_BYTES_MAX:
                del self._answers[asked]


def age_allowed(req: Request) -> float:
    """How old an answer the request allows, in s: what `Cache-Control: max-age` says, at most 10; 0 without it."""
    found = MAX_AGE.search(req.get_header("Cache-Control") or "")
    return 0.0 if found is None else float(min(int(found[1]), ANSWER_AGE_S_MAX))


async def _tagged(make: Callable[[], Awaitable[Made]]) -> tuple[Made, str]:
    made = await make()
    return made, made.tag
