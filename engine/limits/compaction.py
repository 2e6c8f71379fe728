"""Keeping a limit's log short: full decisions, which older records are needed, and what is written again."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from penstock.engine.limits.rates import all_back, missing_at
from penstock.engine.limits.records import Allowed, Decided, WaitingRequest
from penstock.engine.limits.state import LimitState
from penstock.engine.limits.waiting import FAIR, HOLDER, MORE, ORDER, POSITION, PRIORITY, STEP, run_id_of

NEVER = 2**63 - 1  # no log is so long


def full(state: LimitState, allowed: Allowed, now: float, upto: int | None = None) -> Decided:
    """A decision that stands for all before it. It decides nothing new. Only for a limit whose name is known.

    `upto` is the sequence up to which all of the partition's log is folded: a later one lets more of the log go.
    """
    assert state.name is not None, "a limit without a name has nothing to keep"
    at = max(now, state.at)
    upto = _considered(state, max(state.upto, upto or 0))
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
        asked=None if state.asked == allowed else state.asked,
    )


def needed_from(state: LimitState) -> int:
    """The first sequence of the log that a replay of this limit needs; NEVER if nothing of it is folded. O(waiting)."""
    if not state.base:
        return NEVER
    news = state.news[0][0] if state.news else state.base
    return min(state.base, news, _oldest(state) or state.base)


def cut_at(state: LimitState, seq: int) -> int:
    """Where the log may begin so that it has all from `seq` on. A decision that stands for requests needs the releases
    that it did not know: without them, whoever reads it takes somebody for waiting who gave up."""
    for first, decision in reversed(state.written):
        if first < seq <= decision:
            seq = first
    return seq


def forget_cuts(state: LimitState, below: int) -> None:
    """The log begins at the sequence `below` from now on."""
    state.written = [one for one in state.written if one[1] >= below]


def waiting_before(state: LimitState, seq: int) -> list[WaitingRequest]:
    """Who waits by a record that is stored in front of `seq`. Oldest record first."""
    old = [
        entry for entry in state.waiting.entries.values() if entry[POSITION] < seq and entry[HOLDER] not in state.fresh
    ]
    return [
        WaitingRequest(
            holder=entry[HOLDER],
            run_id=run_id_of(entry),
            order=entry[ORDER],
            step_id=entry[STEP],
            priority=-entry[PRIORITY],
            fair=entry[FAIR] or None,
            more=entry[MORE],
        )
        for entry in sorted(old, key=itemgetter(POSITION))
    ]


def written_again(state: LimitState, allowed: Allowed, now: float, waiting: Iterable[WaitingRequest]) -> Decided:
    """A decision that stands for the requests of these holders, which wait. It decides nothing.

    It is a decision so that it knows who gave up what: a request on its own that came behind its release would have
    somebody wait for what nobody wants. `state` must have all asks that the partition's owner knows.
    """
    assert state.name is not None, "who waits has said for what"
    return Decided(
        name=state.name,
        upto=_considered(state, state.upto),
        at=max(now, state.at),
        allowed=allowed,
        told=state.told,
        turn=state.turn or None,
        waiting=tuple(waiting),
    )


def is_idle(state: LimitState, now: float) -> bool:
    """Nobody holds, waits or is to be told something, and all tokens are back: the limit can be forgotten."""
    return not (state.holders or state.waiting.entries or state.news) and all_back(state, now)


def _considered(state: LimitState, upto: int) -> int:
    """Who is fresh is still to be considered: a decision up to them would say that they have been."""
    return min([upto, *(order - 1 for order, _ in state.fresh.values())]) if state.fresh else upto


def _oldest(state: LimitState) -> int | None:
    """The sequence of the oldest record that somebody waits by."""
    return min(map(itemgetter(POSITION), state.waiting.entries.values()), default=None)
