"""Keeping a limit's log short: full decisions, which older records are needed, and what is written again."""

from __future__ import annotations

from operator import itemgetter

from penstock.engine.limits.rates import all_back, missing_at
from penstock.engine.limits.records import Allowed, Decided, Requested
from penstock.engine.limits.state import LimitState
from penstock.engine.limits.waiting import FAIR, HOLDER, ORDER, POSITION, PRIORITY, STEP, run_id_of


def full(state: LimitState, allowed: Allowed, now: float, upto: int | None = None) -> Decided:
    """A decision that stands for all before it. It decides nothing new. Only for a limit whose name is known.

    `upto` is the sequence up to which all of the partition's log is folded: a later one lets more of the log go.
    """
    assert state.name is not None, "a limit without a name has nothing to keep"
    at = max(now, state.at)
    upto = max(state.upto, upto or 0)
    if state.fresh:
        # They are still to be considered: a decision up to them would say that they have been.
        upto = min(upto, min(order for order, _ in state.fresh.values()) - 1)
    return Decided(
        name=state.name,
        upto=upto,
        at=at,
        allowed=allowed,
        told=state.told,
        turn=state.turn or None,
        full=True,
        holders=tuple(state.holders.values()),
        evicting=tuple(holder for holder in state.holders if holder in state.evicting),
        spent=tuple(state.spent),
        missing=missing_at(state, at),
        open=_oldest(state) or 0,
    )


def needed_from(state: LimitState) -> int:
    """The first sequence of the log that a replay of this limit needs. O(waiting)."""
    news = state.news[0][0] if state.news else state.base
    return min(state.base, news, _oldest(state) or state.base)


def requests_before(state: LimitState, seq: int) -> list[Requested]:
    """The requests that still wait and are stored in front of `seq`, as they are to be appended again: with the place
    in the order that they have. Oldest first."""
    if state.name is None or state.allowed is None:
        return []  # all that is known of it is what was given back
    old = [
        entry for entry in state.waiting.entries.values() if entry[POSITION] < seq and entry[HOLDER] not in state.fresh
    ]
    return [
        Requested(
            name=state.name,
            holder=entry[HOLDER],
            run_id=run_id_of(entry),
            allowed=state.allowed,
            step_id=entry[STEP],
            priority=-entry[PRIORITY],
            fair=entry[FAIR] or None,
            order=entry[ORDER],
        )
        for entry in sorted(old, key=itemgetter(POSITION))
    ]


def is_idle(state: LimitState, now: float) -> bool:
    """Nobody holds, waits or is to be told something, and all tokens are back: the limit can be forgotten."""
    return not (state.holders or state.waiting.entries or state.news) and all_back(state, now)


def _oldest(state: LimitState) -> int | None:
    """The sequence of the oldest record that somebody waits by."""
    return min(map(itemgetter(POSITION), state.waiting.entries.values()), default=None)
