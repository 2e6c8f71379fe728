"""Reading stored messages without a consumer: one request, a stream of answers on an inbox that all requests share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import orjson
from msgspec import Struct
from nats.aio.msg import Msg

from penstock.broker.connection import REQUEST_TIMEOUT_S, Broker
from penstock.engine.errors import Unavailable

PAGE = 1000
KEYS_MAX = 1000  # the broker answers at most 1,024 subjects a request


class Stored(Struct, frozen=True):
    """One message of a stream. `at` is the broker's time of storing it, in s; `removed` marks a deleted key."""

    subject: str
    seq: int
    at: float
    data: bytes
    removed: bool = False


class _Answers:
    __slots__ = ("done", "found")

    def __init__(self) -> None:
        self.found: list[Stored] = []
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()


class DirectReader:
    """Owned by whoever opened it (`open_reader`)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._prefix = broker.new_inbox() + "."
        self._cut = len(self._prefix)
        self._count = 0
        self._waiting: dict[str, _Answers] = {}

    async def subject(self, stream: str, subject: str, from_seq: int = 1) -> list[Stored]:
        """All that is stored under one literal subject (or wildcard) from `from_seq` on, in order."""
        found: list[Stored] = []
        while True:
            page, left = await self._ask(stream, {"seq": from_seq, "batch": PAGE, "next_by_subj": subject})
            found += page
            if not left or not page:
                return found
            from_seq = page[-1].seq + 1

    async def last(self, stream: str, subjects: Sequence[str]) -> list[Stored]:
        """The last message of each of these literal subjects; those that have none are left out."""
        found: list[Stored] = []
        for at in range(0, len(subjects), KEYS_MAX):
            page, _ = await self._ask(stream, {"multi_last": list(subjects[at : at + KEYS_MAX])})
            found += page
        return found

    async def _ask(self, stream: str, request: dict[str, Any]) -> tuple[list[Stored], int]:
        if not self._broker.connected:
            raise Unavailable("broker: not connected")
        self._count += 1
        key = str(self._count)
        answers = self._waiting[key] = _Answers()
        try:
            await self._broker.publish(f"$JS.API.DIRECT.GET.{stream}", orjson.dumps(request), reply=self._prefix + key)
            async with self._broker.deadline(REQUEST_TIMEOUT_S):
                return answers.found, await answers.done
        except TimeoutError as error:
            raise Unavailable(f"broker: no answer to a read of {stream}") from error
        finally:
            del self._waiting[key]

    async def _answered(self, msg: Msg) -> None:
        answers = self._waiting.get(msg.subject[self._cut :])
        if answers is None or answers.done.done():
            return
        headers = msg.headers or {}
        status = headers.get("Status")
        if status is None:
            answers.found.append(stored(headers, msg.data))
        elif status in ("204", "404"):
            answers.done.set_result(int(headers.get("Nats-Num-Pending", 0)))
        else:
            answers.done.set_exception(Unavailable(f"broker: a read was answered {status} {headers.get('Description', '')}"))


def stored(headers: dict[str, str], data: bytes) -> Stored:
    """A message out of the headers that a direct read answers with."""
    at = datetime.fromisoformat(headers["Nats-Time-Stamp"][:26].rstrip("Z") + "+00:00").timestamp()
    return Stored(headers["Nats-Subject"], int(headers["Nats-Sequence"]), at, data, "KV-Operation" in headers)


@asynccontextmanager
async def open_reader(broker: Broker) -> AsyncIterator[DirectReader]:
    """A reader for the time of the block."""
    reader = DirectReader(broker)
    subscription = await broker.subscribe(reader._prefix + "*", reader._answered)
    try:
        yield reader
    finally:
        if broker.connected:
            await subscription.unsubscribe()
