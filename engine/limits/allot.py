"""Who gets a slot next. The answer is a record: it is stored, and then folded like any other."""

from __future__ import annotations

from collections import deque

from penstock.engine.limits.rates import next_token_at, tokens
from penstock.engine.limits.records import Allowed, Decided, Granted
from penstock.engine.limits.state import LimitState
from penstock.engine.limits.waiting import HOLDER, MORE, ORDER, STEP, Entry, by_arrival, run_id_of

# A decision is due when so many releases would have to be remembered for it.
RELEASES_MAX = 1000
SKIPPED = "limit"
REPLACED = "replaced"


def allot(state: LimitState, allowed: Allowed, now: float) -> Decided | None:
    """All that can be decided now, or None if nothing changes.

    `allowed` is what counts now, `now` the broker's time (s since the epoch). The state does not change: asking twice
    gives the same answer. The decision counts when it is stored and folded. A limit that was lowered below the number
    of its holders lets nothing begin until they have ended.
    """
    if state.name is None or not (state.waiting.entries or len(state.released) > RELEASES_MAX):
        return None
    at = max(now, state.at)
    free = tokens(state, allowed, at) if state.is_rate else allowed.limit - len(state.holders)
    picked, turn = state.waiting.pick(free, state.turn) if free > 0 else ([], state.turn)
    if not (picked or state.fresh or len(state.released) > RELEASES_MAX):
        return None
    granted = tuple(
        [Granted(entry[HOLDER], run_id_of(entry), entry[STEP], at, entry[ORDER], entry[MORE]) for entry in picked]
    )
    refused, evicted = _displaced(state, granted) if state.fresh else ((), ())
    return Decided(
        name=state.name,
        upto=state.upto,
        at=at,
        allowed=allowed,
        granted=granted,
        refused=refused,
        evicted=evicted,
        told=state.told,
        turn=turn or None,
    )


def next_at(state: LimitState, allowed: Allowed) -> float | None:
    """When time alone lets somebody begin (s since the epoch; past: now). None: it does not, or nobody waits."""
    return next_token_at(state, allowed) if state.is_rate and state.waiting.entries else None


def _displaced(state: LimitState, granted: tuple[Granted, ...]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Who is refused and which holders are evicted, because of newcomers with skip or replace that were not granted.

    A newcomer with `replace` takes the place of the oldest one that waits, or else of the oldest holder, unless a
    slot is about to be free because its holder is evicted already.
    """
    begun = {slot.holder for slot in granted}
    new = {holder: skip for holder, (_, skip) in state.fresh.items() if holder not in begun}
    refused = [(holder, SKIPPED) for holder, skip in new.items() if skip]
    replacing = {holder for holder, skip in new.items() if not skip}
    if not replacing:
        return tuple(refused), ()
    skipped = {holder for holder, _ in refused}
    queue: deque[Entry] = deque()
    evicted: list[str] = []
    for entry in by_arrival(state.waiting.entries.values()):
        holder = entry[HOLDER]
        if holder in begun or holder in skipped:
            continue
        if holder in replacing:
            if queue:
                refused.append((queue.popleft()[HOLDER], REPLACED))
            elif not state.evicting and not evicted:
                evicted += _oldest(state, granted)
        queue.append(entry)
    return tuple(refused), tuple(evicted)


def _oldest(state: LimitState, granted: tuple[Granted, ...]) -> list[str]:
    """The holder that began first, if there is one."""
    oldest = min((*state.holders.values(), *granted), key=lambda slot: (slot.at, slot.order), default=None)
    return [] if oldest is None else [oldest.holder]
