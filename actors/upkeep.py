"""Upkeep: what nobody waits for. Checkpoints of runs that have ended are removed."""

from __future__ import annotations

import asyncio

import structlog

from penstock.actors.loading import load_many
from penstock.broker.store import Store
from penstock.engine.errors import PenstockError

EVERY_S = 10.0

log = structlog.get_logger()


async def keep_up(store: Store) -> None:
    """Look after the store, for ever."""
    while True:
        await asyncio.sleep(EVERY_S)
        try:
            await remove_checkpoints(store)
        except PenstockError as error:
            log.warning("upkeep_waits", error=str(error))


async def remove_checkpoints(store: Store) -> None:
    """Delete the checkpoints of every run that has ended."""
    run_ids = sorted({key.partition(".")[0] for key in await store.checkpoints.keys()})
    for run in await load_many(store, run_ids):
        if run.ended:
            await store.checkpoints.purge(f"{run.run_id}.>")
