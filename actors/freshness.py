"""How far the run index is behind, and how long a reader waits for it: a moment, or for what it must see a bounded while."""

from __future__ import annotations

from typing import NamedTuple

from penstock.actors.run_index import RunIndex
from penstock.broker.store import Store

THERE_S_MAX = 5.0  # for an index that is only being made, just after a start
OWN_WRITES_S_MAX = 1.0  # for what the caller, or this process, has written
OTHERS_S_MAX = 0.05  # for what anybody had written before the read: the index is hardly ever further behind


class Lag(NamedTuple):
    """The messages of the log that the index does not have yet, and their age (s); it is complete as of that time of the broker."""

    messages: int
    seconds: float
    as_of: float


async def freshened(store: Store, index: RunIndex, min_seq: int = 0) -> Lag:
    """Wait until the index has what was written before, though never long, and tell what is missing.

    What this process has stored, and everything up to `min_seq`, is waited for 1 s at most. Raises Unavailable without a broker.
    """
    await index.there(THERE_S_MAX)
    tip = await store.history.tip()
    await index.caught_up(max(store.history.stored, min(min_seq, tip.seq)), OWN_WRITES_S_MAX)
    await index.caught_up(tip.seq, OTHERS_S_MAX)
    at = index.progress()
    if at.seq >= tip.seq:
        return Lag(0, 0.0, max(tip.at, at.as_of))
    return Lag(tip.seq - at.seq, max(0.0, tip.at - at.as_of), at.as_of)
