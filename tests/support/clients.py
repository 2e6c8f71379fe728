"""The two clients of the HTTP API behind one face, so that one test can use either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from inspect import isasyncgen, iscoroutine
from typing import Any

from penstock.client import AsyncClient, Client

Connect = Callable[..., AbstractContextManager[Any]]
"""Takes the arguments of `Client`; what it opens has the methods of `Client`."""


def connect_blocking(url: str, **options: Any) -> AbstractContextManager[Any]:
    return Client(url, **options)


def connect_async(url: str, **options: Any) -> AbstractContextManager[Any]:
    return _awaited(AsyncClient(url, **options))


@contextmanager
def _awaited(client: AsyncClient) -> Iterator[Any]:
    with asyncio.Runner() as runner:
        yield _Awaited(client, runner)
        runner.run(client.close())


class _Awaited:
    """An AsyncClient whose methods wait for their results in a loop of their own."""

    def __init__(self, client: AsyncClient, runner: asyncio.Runner) -> None:
        self._client, self._runner = client, runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def method(*args: Any, **kwargs: Any) -> Any:
            made = getattr(self._client, name)(*args, **kwargs)
            assert iscoroutine(made) or isasyncgen(made)
            return self._runner.run(made) if iscoroutine(made) else self._items(made)

        return method

    def _items(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            try:
                item = self._runner.run(_next(items))
            except StopAsyncIteration:
                return
            yield item


async def _next(items: AsyncIterator[Any]) -> Any:
    return await anext(items)
