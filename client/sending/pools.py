"""The connections of an asyncio client, in small pools: a pool looks at all of its connections for each request, which
costs more than the request when there are many."""

from __future__ import annotations

from collections.abc import Callable

import httpx2

EACH_MAX = 8  # connections of a pool
POOLS_MAX = 62  # each connection keeps a file open, of which a process usually has 1,024
LIMITS = httpx2.Limits(max_connections=EACH_MAX, max_keepalive_connections=EACH_MAX)


class Pool:
    """Owned by Pools. As a context manager it is there for one request."""

    __slots__ = ("http", "requests")

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.requests = 0

    def __enter__(self) -> httpx2.AsyncClient:
        self.requests += 1
        return self.http

    def __exit__(self, *_: object) -> None:
        self.requests -= 1


class Pools:
    """Owned by an AsyncConnection. There are as many pools as were needed at once: the first ones are filled first, and
    their connections are kept, so that many tasks which share a client need not connect again."""

    def __init__(self, make: Callable[[], httpx2.AsyncClient]) -> None:
        """`make` makes a pool with LIMITS."""
        self._make = make
        self._pools = [Pool(make())]

    async def close(self) -> None:
        for pool in self._pools:
            await pool.http.aclose()

    def free(self) -> Pool:
        """A pool with a connection for one more request. When all EACH_MAX * POOLS_MAX are in use, it is the one with
        the fewest requests, where this one waits."""
        for pool in self._pools:
            if pool.requests < EACH_MAX:
                return pool
        if len(self._pools) == POOLS_MAX:
            return min(self._pools, key=lambda pool: pool.requests)
        self._pools.append(Pool(self._make()))
        return self._pools[-1]
