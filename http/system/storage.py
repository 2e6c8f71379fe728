"""Whether published messages are stored, for /health and /ready, and how much is stored, for /metrics.

/health is requested often and by many clients: a result is cached for a moment, for all of them.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from falcon.asgi import Request, Response

from penstock.broker.nats.errors import ApiError
from penstock.broker.store import Store
from penstock.broker.streams.storage import check_writes
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.config.process.notice import NoticeReader
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import PublishFailed, Unavailable
from penstock.http.backend import Backend

API_S_MAX = 2.0
KNOWN_S = 0.25
READING = frozenset({"GET", "HEAD", "OPTIONS"})
PUBLISHING = frozenset(
    {"/runs/{run_id}/cancel", "/runs/{run_id}/signal/{name}"}
)  # whose events, unwritten, are a 500 by specification


class Changes:
    """Refuses requests that change something, at once, while the supervisor reports that nothing is stored; reads still
    work."""

    def __init__(self, notice: NoticeReader) -> None:
        self._notice = notice

    async def process_resource(self, req: Request, resp: Response, resource: object, params: dict[str, Any]) -> None:
        if req.method not in READING and (problem := self._notice.text()):
            kind = PublishFailed if req.uri_template in PUBLISHING else Unavailable
            raise kind(f"{problem}; nothing was done")


class StorageHealth:
    """Owned by the application. It makes a test write on request, at most every KNOWN_S."""

    def __init__(self, backend: Backend, notice: NoticeReader) -> None:
        self._backend, self._notice = backend, notice
        self._asking = asyncio.Lock()
        self._found, self._known_until = "", 0.0

    async def problem(self) -> str:
        """Why nothing is stored, empty when storage works. Raises Unavailable while the broker is not connected."""
        if reported := self._notice.text():
            return reported
        store = self._backend.store
        async with self._asking:
            if time.monotonic() >= self._known_until:
                self._found = await _problem(store, self._backend.settings)
                self._known_until = time.monotonic() + KNOWN_S
        return self._notice.text() or self._found


async def _problem(store: Store, settings: BrokerSettings) -> str:
    try:
        async with asyncio.timeout(API_S_MAX):
            await store.history.last_seq()
            used, limit = await storage(store, settings)
            if limit is not None and used + PAYLOAD_BYTES_MAX > limit:
                return f"the broker's storage is full: {used} of {limit} bytes are used"
            await check_writes(store.broker)
    except TimeoutError:
        return "the broker's storage gives no answer"
    except ApiError as error:
        return f"the broker's storage does not work: {error}"
    except Unavailable as error:
        return str(error)
    return ""


async def storage(store: Store, settings: BrokerSettings) -> tuple[int, int | None]:
    """Stored bytes, and their limit. Raises Unavailable, ApiError."""
    return _used(await store.broker.api("INFO", timeout_s=API_S_MAX), settings)


def _used(info: dict[str, Any], settings: BrokerSettings) -> tuple[int, int | None]:
    return info["storage"], _limit(info["limits"]["max_storage"], settings)


def _limit(account: int, settings: BrokerSettings) -> int | None:
    """The limit of stored bytes. The embedded broker's limit is the server's, which its account does not show."""
    if account > 0:
        return account
    return settings.max_store_bytes if settings.embedded else None
