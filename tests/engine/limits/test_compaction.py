"""Which part of a limit's log is needed, and what stands for the rest."""

from __future__ import annotations

from penstock.engine.limits.allot import RELEASES_MAX
from penstock.engine.limits.compaction import (
    cut_at,
    forget_cuts,
    full,
    is_idle,
    needed_from,
    waiting_before,
    written_again,
)
from penstock.engine.limits.fold import mark_told
from penstock.engine.limits.names import LimitKind, OnLimit
from penstock.engine.limits.records import Allowed, Decided
from penstock.engine.limits.state import LimitState
from tests.engine.limits.log import LimitLog, holders, known, waits


def _worn(limit: int = 2) -> LimitLog:
    """A log of some age: two hold, two wait."""
    log = LimitLog(Allowed(limit))
    log.asks("a", "b", "c", fair="x")
    log.asks("d", "e", fair="y")
    log.decides()
    log.releases("a")
    log.decides()
    mark_told(log.owner, log.owner.last)
    return log


def _make_full(log: LimitLog) -> int:
    return log.store(full(log.owner, log.allowed, log.now, log.records[-1][0]))


def test_without_a_full_decision_all_records_are_needed() -> None:
    assert needed_from(_worn().owner) == 1


def test_nothing_is_needed_of_a_log_that_is_not_folded() -> None:
    assert needed_from(LimitState()) > 1_000_000_000_000


def test_a_full_decision_stands_for_all_before_it_but_for_requests_that_wait() -> None:
    log = _worn()
    _make_full(log)
    oldest = min(entry[1] for entry in log.owner.waiting.entries.values())

    assert needed_from(log.owner) == oldest == 3
    assert known(log.replayed(oldest)) == known(log.owner)
    assert holders(log.replayed(oldest + 5)) == holders(log.owner)
    assert waits(log.replayed(oldest + 5)) != waits(log.owner)


def _again(log: LimitLog, count: int = 10) -> Decided:
    """Who waits, or the first of them, in one decision."""
    waiting = waiting_before(log.owner, log.records[-1][0] + 1)[:count]
    return written_again(log.owner, log.allowed, log.now, waiting)


def test_requests_that_are_written_again_let_the_log_go_and_keep_their_order() -> None:
    log = _worn()
    seq = _make_full(log)
    order = waits(log.owner)
    again = _again(log)
    log.store(again)

    assert [(one.holder, one.run_id, one.fair) for one in again.waiting] == [("c", "c", "x"), ("e", "e", "y")]
    assert needed_from(log.owner) == seq
    assert waits(log.owner) == order
    assert known(log.replayed(seq)) == known(log.owner)
    log.releases("b", "d")
    assert log.decides() == ["e", "c"]


def test_a_request_that_is_given_up_while_it_is_written_again_waits_no_more() -> None:
    log = _worn()
    _make_full(log)
    again = _again(log)
    log.releases("c")
    seq = log.store(again)

    assert waits(log.owner) == waits(log.replayed()) == waits(log.replayed(seq - 1)) == ["e"]
    log.releases("b", "d")
    assert log.decides() == ["e"]
    assert log.decides() == []


def test_the_log_is_not_cut_between_what_such_a_decision_knew_and_the_decision() -> None:
    log = _worn()
    knew = _make_full(log) - 1
    again = _again(log)
    log.releases("c")
    seq = log.store(again)
    log.releases("e")
    full_again = _make_full(log)

    assert needed_from(log.owner) == full_again
    assert [cut_at(log.owner, at) for at in range(knew, full_again + 1)] == [
        knew,
        *[knew + 1] * (seq - knew),
        seq + 1,
        full_again,
    ]
    assert waits(log.replayed(knew + 1)) == []
    forget_cuts(log.owner, seq + 1)
    assert cut_at(log.owner, seq) == seq


def test_a_request_that_is_written_again_takes_one_token() -> None:
    log = LimitLog(Allowed(1, 1.0), LimitKind.RATE)
    log.asks("a", "b", "c")
    assert log.decides() == ["a"]
    _make_full(log)
    log.store(_again(log, 1))
    log.now += 1

    assert log.decides() == ["b"]
    log.now += 1
    assert log.decides() == ["c"]
    assert known(log.replayed(4)) == known(log.owner)
    log.now += 1
    assert log.decides() == []


def test_what_requests_say_is_allowed_is_known_without_them() -> None:
    log = LimitLog(Allowed(3))
    log.asks("a", "b")
    log.decides(Allowed(1))
    seq = log.store(full(log.owner, Allowed(1), log.now))
    log.store(_again(log))

    assert log.replayed(seq).allowed == log.owner.allowed == Allowed(3)


def test_releases_that_a_full_decision_did_not_know_are_needed_and_count() -> None:
    log = _worn()
    decided = full(log.owner, log.allowed, log.now)
    log.releases("b")
    log.store(decided)

    assert "b" in {slot.holder for slot in decided.holders}
    assert holders(log.owner) == holders(log.replayed(needed_from(log.owner))) == ["d"]


def test_decisions_whose_news_runs_do_not_have_yet_are_needed() -> None:
    log = _worn()
    log.releases("b")
    log.decides()
    news = log.owner.last
    log.releases("d")
    log.decides()
    _make_full(log)

    assert needed_from(log.owner) == news
    mark_told(log.owner, news)
    assert needed_from(log.owner) > news
    assert log.owner.news[0][0] > news


def test_what_runs_know_is_in_the_next_decision_and_the_rest_is_news_to_who_takes_over() -> None:
    log = LimitLog(Allowed(1))
    log.asks("a", "b")
    log.decides()
    mark_told(log.owner, log.owner.last)
    log.releases("a")
    decided = log.turn()

    assert decided is not None
    assert decided.told == 3
    assert log.replayed().news == [(log.owner.last, decided)]
    assert log.replayed().told == 3


def test_who_is_still_to_be_considered_stays_so_behind_a_full_decision() -> None:
    log = LimitLog(Allowed(0))
    log.asks("a")
    log.asks("b", on_limit=OnLimit.SKIP)
    _make_full(log)

    assert [one.holder for one in waiting_before(log.owner, 100)] == ["a"]
    assert known(log.replayed()) == known(log.owner)
    decided = log.turn()
    assert decided is not None
    assert decided.refused == (("b", "limit"),)


def test_a_full_decision_that_comes_twice_changes_nothing() -> None:
    log = _worn()
    seq = _make_full(log)
    before = known(log.owner)
    decided = full(log.owner, log.allowed, log.now)

    log.fold_late(seq, decided)

    assert known(log.owner) == before


def test_many_releases_with_nobody_waiting_lead_to_one_decision_that_ends_their_memory() -> None:
    log = LimitLog(Allowed(RELEASES_MAX + 1))
    log.asks(*(f"r{number}" for number in range(RELEASES_MAX + 1)))
    log.decides()
    log.releases(*(f"r{number}" for number in range(RELEASES_MAX)))
    assert log.turn() is None

    log.releases(f"r{RELEASES_MAX}")
    decided = log.turn()

    assert decided is not None
    assert decided.granted == ()
    assert log.owner.released == {}
    assert log.turn() is None


def test_a_limit_is_idle_when_nobody_holds_or_waits_or_is_to_be_notified() -> None:
    log = LimitLog()
    assert is_idle(log.owner, log.now)
    log.asks("a")
    assert not is_idle(log.owner, log.now)
    log.decides()
    log.releases("a")
    assert not is_idle(log.owner, log.now)

    mark_told(log.owner, log.owner.last)

    assert is_idle(log.owner, log.now)


def test_a_rate_is_idle_when_its_tokens_are_back() -> None:
    log = LimitLog(Allowed(5, 10.0), LimitKind.RATE)
    log.asks("a")
    log.decides()
    mark_told(log.owner, log.owner.last)

    assert not is_idle(log.owner, log.now + 9.9)
    assert is_idle(log.owner, log.now + 10)
