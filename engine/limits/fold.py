"""How each record of a limit's log changes what is known of the limit.

A decision was made when all asks up to its `upto` were folded and none beyond. Its owner folds it as soon as it is
stored, before asks that were stored in the meantime; a replay meets these asks first. Both come to the same state:
a decision changes nothing for a holder that was released behind its `upto`, and a request in front of a decision that
has settled it changes nothing.

Asks are folded in the order of their sequences, decisions likewise. A record that is folded twice changes nothing the
second time, and so does what cannot be: a request of who waits or holds already, a release of who does neither.
"""

from __future__ import annotations

from itertools import takewhile

from penstock.engine.limits.names import LimitKind, LimitName, OnLimit
from penstock.engine.limits.rates import set_spent, take
from penstock.engine.limits.records import Decided, LimitRecord, Released, Requested
from penstock.engine.limits.state import LimitState


def fold(state: LimitState, record: LimitRecord, seq: int) -> None:
    """`state` after the record that is stored at sequence `seq` of its log."""
    if not state.base:
        state.base = seq
    if isinstance(record, Decided):
        if seq > state.last:
            _decided(state, record, seq)
        return
    if seq <= state.upto:
        return
    state.upto = seq
    if state.settled:
        _drop_up_to(state.settled, seq)
    if isinstance(record, Requested):
        _requested(state, record, seq)
    else:
        _released(state, record, seq)


def mark_told(state: LimitState, seq: int) -> None:
    """All runs have the news of decisions up to the sequence `seq`. The next decision says so."""
    state.told = max(state.told, seq)
    if state.news and state.news[0][0] <= state.told:
        state.news = [news for news in state.news if news[0] > state.told]


def _requested(state: LimitState, request: Requested, seq: int) -> None:
    if state.name is None:
        _set_name(state, request.name)
    state.asked = request.allowed
    holder = request.holder
    if holder in state.holders or holder in state.waiting.entries or state.settled.get(holder, 0) > seq:
        return
    state.waiting.add(request, seq, seq)
    if request.on_limit is not OnLimit.QUEUE and seq > state.decided_upto:
        state.fresh[holder] = (seq, request.on_limit is OnLimit.SKIP)


def _released(state: LimitState, release: Released, seq: int) -> None:
    holder = release.holder
    state.settled.pop(holder, None)
    if state.holders.pop(holder, None) is not None:
        state.evicting.discard(holder)
    else:
        _waits_no_more(state, holder)
    state.released.pop(holder, None)
    state.released[holder] = seq


def _decided(state: LimitState, decided: Decided, seq: int) -> None:
    state.last = seq
    if state.name is None:
        _set_name(state, decided.name)
    state.counted = decided.allowed
    state.upto = max(state.upto, decided.upto)
    state.decided_upto = max(state.decided_upto, decided.upto)
    state.turn = decided.turn or ""
    state.at = max(state.at, decided.at)
    if decided.full:
        _full(state, decided)
    if decided.waiting:
        _written_again(state, decided, seq)
    if decided.granted:
        _granted(state, decided, seq)
    if decided.refused:
        _refused(state, decided, seq)
    if decided.evicted:
        state.evicting.update(holder for holder in decided.evicted if holder in state.holders)

    if state.fresh:
        state.fresh = {holder: new for holder, new in state.fresh.items() if new[0] > state.decided_upto}
    if state.released:
        _drop_up_to(state.released, decided.upto)
    if decided.granted or decided.refused or decided.evicted:
        state.news.append((seq, decided))
    mark_told(state, decided.told)


def _set_name(state: LimitState, name: LimitName) -> None:
    state.name = name
    state.is_rate = name.kind is LimitKind.RATE


def _granted(state: LimitState, decided: Decided, seq: int) -> None:
    released, upto = state.released, decided.upto
    for granted in decided.granted:
        holder = granted.holder
        if released and released.get(holder, 0) > upto:
            continue
        _waits_no_more(state, holder)
        if state.is_rate:
            state.settled[holder] = seq
        else:
            state.holders[holder] = granted
    if state.is_rate:
        take(state, len(decided.granted), decided.allowed, decided.at)


def _refused(state: LimitState, decided: Decided, seq: int) -> None:
    for holder, _ in decided.refused:
        if state.released.get(holder, 0) <= decided.upto:
            _waits_no_more(state, holder)
            state.settled[holder] = seq


def _full(state: LimitState, decided: Decided) -> None:
    """It stands for all decisions before it. Who waits is what the requests since `open` say."""
    released, upto = state.released, decided.upto
    state.asked = state.asked or decided.asked or decided.allowed
    state.holders = {granted.holder: granted for granted in decided.holders if released.get(granted.holder, 0) <= upto}
    state.evicting = {holder for holder in decided.evicting if holder in state.holders}
    for holder in state.holders:
        _waits_no_more(state, holder)
    set_spent(state, decided.spent, decided.missing, decided.at)
    state.base = upto + 1


def _written_again(state: LimitState, decided: Decided, seq: int) -> None:
    """The decision stands for these requests. One that was given up behind what it knew is none any more."""
    state.written.append((decided.upto + 1, seq))
    for one in decided.waiting:
        if state.released.get(one.holder, 0) <= decided.upto:
            state.waiting.write_again(one, seq)
            state.fresh.pop(one.holder, None)


def _waits_no_more(state: LimitState, holder: str) -> None:
    if state.waiting.remove(holder) and state.fresh:
        state.fresh.pop(holder, None)


def _drop_up_to(sequences: dict[str, int], seq: int) -> None:
    """Without the oldest, up to `seq`. They are in the order of their sequences."""
    if next(reversed(sequences.values())) <= seq:
        sequences.clear()
        return
    for holder in [*takewhile(lambda holder: sequences[holder] <= seq, sequences)]:
        del sequences[holder]
