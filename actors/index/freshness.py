"""How far the run index is behind the log, and how long a reader waits for it."""

from __future__ import annotations

from typing import NamedTuple

from penstock.actors.index.run_index import RunIndex
from penstock.broker.store import Store

THERE_S_MAX = 5.0  # for an index that is only being made, just after a start
NAMED_S_MAX = 1.0  # for what the caller names, and for what this process has written, if that is near
# messages: so much the index reads in a moment; beyond it a burst drains, and the answer says how far it is
NEAR = 1000
OTHERS_S_MAX = 0.05  # for what anybody had written before the read: the index is hardly ever further behind


class Lag(NamedTuple):
    """The messages of the log that the index has not read yet, and their age (s); the index is complete up to `as_of`,
    a time of the broker."""

    messages: int
    seconds: float
    as_of: float


async def freshened(store: Store, index: RunIndex, min_seq: int = 0, *, hasty: bool = False) -> Lag:
    """Wait a bounded time until the index has what was written before; returns what is missing.

    Everything up to `min_seq`, and what this process has stored, is waited for 1 s at most. `hasty`: do not wait during
    a burst, because a list must answer within 200 ms even then. Raises Unavailable without a broker.
    """
    await index.there(THERE_S_MAX)
    tip = await store.history.tip()
    own = store.history.stored
    if hasty and own - index.progress().seq > NEAR:
        own = 0
    await index.caught_up(max(own, min(min_seq, tip.seq)), NAMED_S_MAX)
    await index.caught_up(tip.seq, OTHERS_S_MAX)
    at = index.progress()
    if at.seq >= tip.seq:
        return Lag(0, 0.0, max(tip.at, at.as_of))
    return Lag(tip.seq - at.seq, max(0.0, tip.at - at.as_of), at.as_of)
