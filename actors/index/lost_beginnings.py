"""Runs whose first event was removed from the log before the run index had read it: their rows come from snapshots."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection

import msgspec

from penstock.actors.index.instants import instant_us
from penstock.actors.index.rows import Row, label_texts, pause_texts
from penstock.broker.nats.buckets import Entry
from penstock.broker.store import Store
from penstock.engine.errors import NeedsUpgrade
from penstock.engine.run.event_payloads import parent_run_id
from penstock.engine.run.state import head_of

BODIES_AT_ONCE = 50  # a snapshot may have some MiB


async def lost_beginnings(store: Store, unknown: Callable[[Collection[str]], list[str]]) -> AsyncGenerator[list[Row]]:
    """Yield rows of the runs that have a snapshot and are `unknown`, BODIES_AT_ONCE at a time. Raises Unavailable."""
    run_ids = unknown(await store.runs.keys())
    for at in range(0, len(run_ids), BODIES_AT_ONCE):
        found = await store.runs.get_many(run_ids[at : at + BODIES_AT_ONCE])
        yield [row for entry in found.values() if (row := _row(entry)) is not None]


def _row(entry: Entry) -> Row | None:
    """None for a snapshot that cannot be read here: reading the run itself reports that."""
    try:
        head = head_of(entry.value)
    except (NeedsUpgrade, msgspec.MsgspecError):
        return None
    created_us = instant_us(head.created_at)
    parent = parent_run_id(head.parent)
    labels = (*label_texts(head.labels, head.trigger), *pause_texts(head.pause))
    return Row(entry.key, head.workflow_id, head.status, created_us or 0, 0, head.seq, head.rerun_of, parent, labels)
