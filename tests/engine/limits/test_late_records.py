"""A decision is folded at once by its owner, and behind asks that were stored in the meantime by a replay."""

from __future__ import annotations

import pytest

from penstock.engine.limits.allot import allot
from penstock.engine.limits.compaction import waiting_before, written_again
from penstock.engine.limits.fold import fold
from penstock.engine.limits.records import Allowed, Released, decode, encode
from tests.engine.limits.log import LimitLog, holders, known, waits


def _decide_meanwhile(log: LimitLog, *meanwhile: Released | str) -> None:
    """The records `meanwhile` are stored in front of the decision, and folded by its owner behind it."""
    decided = allot(log.owner, log.allowed, log.now)
    assert decided is not None
    late = [log.request(record) if isinstance(record, str) else record for record in meanwhile]
    stored = [(log.append(record), record) for record in late]
    log.store(decided)
    for seq, record in stored:
        fold(log.owner, record, seq)


def test_who_was_released_while_it_was_granted_does_not_hold() -> None:
    log = LimitLog(Allowed(1))
    log.asks("a", "b")

    _decide_meanwhile(log, Released(holder="a"))

    assert (holders(log.owner), waits(log.owner)) == ([], ["b"])
    assert known(log.replayed()) == known(log.owner)
    assert log.decides() == ["b"]


def test_a_request_while_a_decision_is_stored_waits() -> None:
    log = LimitLog(Allowed(2))
    log.asks("a")

    _decide_meanwhile(log, "b", "a")

    assert (holders(log.owner), waits(log.owner)) == (["a"], ["b"])
    assert known(log.replayed()) == known(log.owner)


def test_a_request_behind_a_release_while_it_was_granted_waits_anew() -> None:
    log = LimitLog(Allowed(1))
    log.asks("a")

    _decide_meanwhile(log, Released(holder="a"), "a")

    assert (holders(log.owner), waits(log.owner)) == ([], ["a"])
    assert known(log.replayed()) == known(log.owner)


@pytest.mark.parametrize("length", range(1, 14))
def test_any_beginning_of_the_log_is_the_same_when_it_is_folded_twice(length: int) -> None:
    log = LimitLog(Allowed(2))
    log.asks("a", "b", "c", "d")
    log.decides()
    log.releases("a", "c")
    log.decides()
    log.asks("e", priority=1)
    log.releases("b", "d")
    log.decides()
    del log.records[length:]
    state = log.replayed()
    before = known(state)

    for seq, body in log.records:
        fold(state, decode(body), seq)

    assert known(state) == before


def test_records_are_stored_as_they_are() -> None:
    log = LimitLog(Allowed(3, 60.0, 5))
    log.asks("a", "b", fair="x", priority=-3)
    log.decides()

    assert [encode(decode(body)) for _, body in log.records] == [body for _, body in log.records]
    again = written_again(log.owner, log.allowed, log.now, waiting_before(log.owner, 9))
    assert decode(encode(again)) == again
