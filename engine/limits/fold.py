"""How each record of a limit's log changes what is known of the limit.

A decision was made when all asks up to its `upto` were folded and none beyond. Its owner folds it as soon as it is
stored, before asks that were stored in the meantime; a replay meets these asks first. Both come to the same state:
a decision changes nothing for a holder that was released behind its `upto`, and a request in front of a decision that
has settled it changes nothing.

Asks are folded in the order of their sequences, decisions likewise. A record that is folded twice changes nothing the
second time, and so does what cannot be: a request of who waits or holds already, a release of who does neither.
"""

from __future__ import annotations

from itertools import islice

from penstock.engine.limits.names import LimitKind, OnLimit
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
    while state.news and state.news[0][0] <= state.told:
        state.news.popleft()


def _requested(state: LimitState, request: Requested, seq: int) -> None:
    if state.name is None:
        state.name = request.name
    if request.order is None or state.asked is None:
        state.asked = request.allowed
    holder = request.holder
    if holder in state.holders or state.settled.get(holder, 0) > seq:
        return
    order = seq if request.order is None else request.order
    known = state.waiting.entries.get(holder)
    if known is not None:
        if request.order is not None:
            state.waiting.move(known, order, seq)
        return
    state.waiting.add(request, order, seq)
    if request.on_limit is not OnLimit.QUEUE and order > state.decided_upto:
        state.fresh[holder] = (order, request.on_limit is OnLimit.SKIP)


def _released(state: LimitState, release: Released, seq: int) -> None:
    holder = release.holder
    state.settled.pop(holder, None)
    if state.holders.pop(holder, None) is not None:
        state.evicting.discard(holder)
    elif state.waiting.remove(holder):
        state.fresh.pop(holder, None)
    state.released.pop(holder, None)
    state.released[holder] = seq


def _decided(state: LimitState, decided: Decided, seq: int) -> None:
    state.last = seq
    state.name = decided.name
    state.counted = decided.allowed
    state.upto = max(state.upto, decided.upto)
    state.decided_upto = max(state.decided_upto, decided.upto)
    state.turn = decided.turn or ""
    if decided.full:
        _full(state, decided)
    _granted(state, decided, seq)
    _refused(state, decided, seq)
    state.evicting.update(holder for holder in decided.evicted if holder in state.holders)
    state.at = max(state.at, decided.at)

    for holder in [holder for holder, (order, _) in state.fresh.items() if order <= state.decided_upto]:
        del state.fresh[holder]
    _drop_up_to(state.released, decided.upto)
    if decided.granted or decided.refused or decided.evicted:
        state.news.append((seq, decided))
    mark_told(state, decided.told)


def _granted(state: LimitState, decided: Decided, seq: int) -> None:
    rate = decided.name.kind is LimitKind.RATE
    for granted in decided.granted:
        holder = granted.holder
        if state.released.get(holder, 0) > decided.upto:
            continue
        state.waiting.remove(holder)
        if rate:
            state.settled[holder] = seq
        else:
            state.holders[holder] = granted
    if rate and decided.granted:
        take(state, len(decided.granted), decided.allowed, decided.at)


def _refused(state: LimitState, decided: Decided, seq: int) -> None:
    for holder, _ in decided.refused:
        if state.released.get(holder, 0) <= decided.upto:
            state.waiting.remove(holder)
            state.settled[holder] = seq


def _full(state: LimitState, decided: Decided) -> None:
    """It stands for all decisions before it. Who waits is what the requests since `open` say."""
    released, upto = state.released, decided.upto
    state.holders = {granted.holder: granted for granted in decided.holders if released.get(granted.holder, 0) <= upto}
    state.evicting = {holder for holder in decided.evicting if holder in state.holders}
    for holder in state.holders:
        state.waiting.remove(holder)
    set_spent(state, decided.spent, decided.missing, decided.at)
    state.base = upto + 1


def _drop_up_to(sequences: dict[str, int], seq: int) -> None:
    """Without the oldest, up to `seq`. They are in the order of their sequences."""
    count = 0
    for known in sequences.values():
        if known > seq:
            break
        count += 1
    if count == len(sequences):
        sequences.clear()
    else:
        for holder in list(islice(sequences, count)):
            del sequences[holder]
