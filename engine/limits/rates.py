"""Tokens of a rate: a window that moves with time or, with `burst`, a bucket.

A window gives all its tokens at once to who comes after a rest. One that is used up would give them in the same burst
again and again, so the tokens of a fast one come back in portions then.
"""

from __future__ import annotations

from math import floor

from penstock.engine.limits.records import Allowed
from penstock.engine.limits.state import LimitState

# A token counts as back when less than this part of it is missing: what floats cannot say of a time.
ROUNDING = 1e-6
# A bucket's next token is expected so much later (s), that rounding does not make it too early.
LATER_S = 1e-6
# Times closer than this part of the period are one: the later one, so that no token is back too early.
GROUPS = 1000
# A window that has more than one token for a portion's time gives its tokens evenly over this time at most (s).
PORTION_S = 0.01
EVEN_S_MAX = 1.0
# It may be late by so many portions, and then catches up by being so much faster.
PORTIONS_LATE = 4
FASTER = 1.01


def tokens(state: LimitState, allowed: Allowed, at: float) -> int:
    """How many may begin at `at`: 0 or more."""
    if allowed.limit <= 0:
        return 0
    if allowed.burst is not None:
        return max(0, floor(allowed.burst - _missing(state, allowed, at) + ROUNDING))
    period = period_of(allowed)
    back = 0
    for taken_at, count in state.spent:
        if taken_at + period > at:
            break
        back += count
    free, portion = allowed.limit - state.spent_total + back, _portion(allowed)
    if portion > 1 and _is_pressed(state, allowed, at):
        free = min(free, floor(PORTIONS_LATE * portion - _missing(state, allowed, at) + ROUNDING))
    return max(0, free)


def next_token_at(state: LimitState, allowed: Allowed) -> float | None:
    """When `tokens` is 1 or more (s since the epoch, perhaps past). None: never."""
    if allowed.limit <= 0:
        return None
    if allowed.burst is not None:
        if allowed.burst <= 0:
            return None
        too_many = state.missing - allowed.burst + 1
        return state.missing_at + LATER_S + max(0.0, too_many / _refill(allowed))
    at, needed = state.at, state.spent_total - allowed.limit + 1
    for taken_at, count in state.spent:
        if needed <= 0:
            break
        needed -= count
        if needed <= 0:
            at = taken_at + period_of(allowed)
    portion = _portion(allowed)
    if portion > 1 and _is_pressed(state, allowed, at):
        wanted = min(floor(portion), state.waiting_total)
        too_many = state.missing - PORTIONS_LATE * portion + wanted
        at = max(at, state.missing_at + LATER_S + max(0.0, too_many / _refill(allowed)))
    return at


def take(state: LimitState, count: int, allowed: Allowed, at: float) -> None:
    """`count` tokens are taken at `at`."""
    state.missing = _missing(state, allowed, at) + count
    state.missing_at = at
    period = period_of(allowed)
    spent = state.spent
    back = 0
    while back < len(spent) and spent[back][0] + period <= at:
        state.spent_total -= spent[back][1]
        back += 1
    del spent[:back]
    if spent and 0 <= at - state.grouped_at <= period / GROUPS:
        spent[-1] = (at, spent[-1][1] + count)
    else:
        spent.append((at, count))
        state.grouped_at = at
    state.spent_total += count
    if state.spent_total >= allowed.limit:
        state.used_up_at = at
        _start_evenly(state, allowed, at)


def set_spent(state: LimitState, spent: tuple[tuple[float, int], ...], missing: float, at: float) -> None:
    """What a full decision says."""
    state.spent = list(spent)
    state.spent_total = sum(count for _, count in spent)
    state.grouped_at = 0.0
    state.missing = missing
    state.missing_at = at


def missing_at(state: LimitState, at: float) -> float:
    """How many tokens are missing at `at`."""
    return 0.0 if state.counted is None else _missing(state, state.counted, at)


def all_back(state: LimitState, at: float) -> bool:
    """No token is missing any more, by what the last decision counted."""
    if state.counted is None:
        return True
    last = state.spent[-1][0] if state.spent else 0.0
    return last + period_of(state.counted) <= at and missing_at(state, at) <= 0


def period_of(allowed: Allowed) -> float:
    """In seconds."""
    return allowed.per_s or 1.0


def _missing(state: LimitState, allowed: Allowed, at: float) -> float:
    return max(0.0, state.missing - max(0.0, at - state.missing_at) * _refill(allowed))


def _refill(allowed: Allowed) -> float:
    """How many tokens come back in a second."""
    if allowed.burst is not None:
        return allowed.limit / period_of(allowed)
    return FASTER * allowed.limit / min(period_of(allowed), EVEN_S_MAX)


def _start_evenly(state: LimitState, allowed: Allowed, at: float) -> None:
    """The window is used up: when it has tokens again, it gives one portion, and nothing is to be caught up."""
    portion = _portion(allowed)
    if allowed.burst is None and portion > 1:
        back_in = max(0.0, state.spent[0][0] + period_of(allowed) - at)
        state.missing = max(state.missing, (PORTIONS_LATE - 1) * portion + back_in * _refill(allowed))


def _is_pressed(state: LimitState, allowed: Allowed, at: float) -> bool:
    """Whether the window was used up lately."""
    period = period_of(allowed)
    return at < state.used_up_at + period + min(period, EVEN_S_MAX)


def _portion(allowed: Allowed) -> float:
    """How many tokens of a window come back at a time; 1 or less: each when its time has come."""
    return allowed.limit * PORTION_S / min(period_of(allowed), EVEN_S_MAX)
