"""A follower of the run index for the time of a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress

from penstock.actors.index.file import index_path
from penstock.actors.index.follower import Fold, follow
from penstock.actors.index.run_index import RunIndex
from penstock.actors.runs.loading import load_many
from penstock.broker.store import Store
from penstock.config.settings import BrokerSettings

SECONDS = 10.0


@asynccontextmanager
async def following(
    store: Store, settings: BrokerSettings, fold: Fold = load_many
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Keep the index up; what it yields waits until it has everything that is in the log now."""
    path = index_path(settings.data_dir)
    task = asyncio.create_task(follow(store, path, fold))

    async def seen() -> None:
        with closing(RunIndex(path)) as index:
            assert await index.caught_up(await store.history.last_seq(), SECONDS)

    try:
        yield seen
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
