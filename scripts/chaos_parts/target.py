"""The server that http steps talk to: it belongs to the storm, never dies, and writes down every request."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson

from .ledger import Ledger, Requested

CHANCES = {200: 0.75, 503: 0.15, 429: 0.05, 404: 0.05}
HEAD_S_MAX = 30.0
REASONS = {200: "OK", 404: "Not Found", 429: "Too Many Requests", 503: "Service Unavailable"}


class Target:
    """Owned by the storm. `url` is where requests go, by the key of their run."""

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self._ledger, self._dice = ledger, random.Random(f"target {seed}")
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request: it is answered, perhaps that it should come again, or that there is no such thing."""
        try:
            async with asyncio.timeout(HEAD_S_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            writer.write(self._answered(first.split(" ")[1], headers))
            await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # whoever has asked is gone
        finally:
            writer.close()

    def _answered(self, path: str, headers: dict[str, str]) -> bytes:
        status = self._dice.choices([*CHANCES], [*CHANCES.values()])[0]
        body = {"by": secrets.token_hex(8)}
        asked = Requested(path, headers.get("idempotency-key", ""), headers.get("x-by", ""), status, body)
        self._ledger.requests.append(asked)
        text = orjson.dumps(body)
        later = "Retry-After: 1\r\n" if status == 429 else ""
        head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\nConnection: close\r\n{later}"
        return f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text


@asynccontextmanager
async def serving(ledger: Ledger, seed: int) -> AsyncIterator[Target]:
    """A target on a free port of this host, for the time of the block."""
    target = Target(ledger, seed)
    server = await asyncio.start_server(target.answer, "127.0.0.1", 0)
    async with server:
        target.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield target
