"""The connections of an asyncio client, in small pools: a pool looks at all of its connections for each request, which
costs more than the request when there are many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx2

EACH_MAX = 8  # connections of a pool
POOLS_MAX = 62  # each connection keeps a file open, of which a process usually has 1,024
LIMITS = httpx2.Limits(max_connections=EACH_MAX, max_keepalive_connections=EACH_MAX)


class _Pool:
    __slots__ = ("http", "requests")

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.requests = 0


class Pools:
    """Owned by an AsyncConnection. There are as many pools as were needed at once: the first ones are filled first, and
    their connections are kept, so that many tasks which share a client need not connect again."""

    def __init__(self, make: Callable[[], httpx2.AsyncClient]) -> None:
        """`make` makes a pool with LIMITS."""
        self._make = make
        self._pools = [_Pool(make())]

    async def close(self) -> None:
        for pool in self._pools:
            await pool.http.aclose()

    @contextmanager
    def one(self) -> Iterator[httpx2.AsyncClient]:
        """A pool for one request, with a connection that is free, unless there are EACH_MAX * POOLS_MAX requests: then
        the request waits for one."""
        pool = self._free()
        pool.requests += 1
        try:
            yield pool.http
        finally:
            pool.requests -= 1

    def _free(self) -> _Pool:
        for pool in self._pools:
            if pool.requests < EACH_MAX:
                return pool
        if len(self._pools) == POOLS_MAX:
            return min(self._pools, key=lambda pool: pool.requests)
        self._pools.append(_Pool(self._make()))
        return self._pools[-1]
