"""Rates: how many may begin in a time, by a window that moves, or by a bucket."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.engine.limits.allot import allot, next_at
from penstock.engine.limits.compaction import full
from penstock.engine.limits.names import LimitKind
from penstock.engine.limits.records import Allowed
from tests.engine.limits.log import LimitLog, known


def _rate(limit: int, per_s: float, burst: int | None = None) -> LimitLog:
    return LimitLog(Allowed(limit, per_s, burst), LimitKind.RATE)


def _wait_for_next(log: LimitLog) -> float:
    """Until time lets somebody begin. Returns how long."""
    at = next_at(log.owner, log.allowed)
    assert at is not None
    before, log.now = log.now, max(log.now, at)
    return log.now - before


def test_as_many_as_the_limit_begin_at_once_and_the_next_one_a_period_later() -> None:
    log = _rate(2, 10.0)
    log.asks(*"abc")

    assert log.decides() == ["a", "b"]

    assert log.owner.holders == {}
    assert log.turn() is None
    assert _wait_for_next(log) == 10.0
    assert log.decides() == ["c"]


def test_a_token_is_back_one_period_after_it_was_taken() -> None:
    log = _rate(2, 10.0)
    log.asks("a")
    log.decides()
    log.now += 4
    log.asks(*"bcd")

    assert log.decides() == ["b"]
    assert _wait_for_next(log) == 6.0
    assert log.decides() == ["c"]
    assert _wait_for_next(log) == 4.0
    assert log.decides() == ["d"]


def test_nothing_begins_right_before_the_next_token() -> None:
    log = _rate(1, 10.0)
    log.asks("a", "b")
    log.decides()

    log.now += 9.999

    assert log.turn() is None


@pytest.mark.parametrize("burst", [None, 1, 20])
def test_five_hundred_a_second_are_reached_and_never_exceeded(burst: int | None) -> None:
    log = _rate(500, 1.0, burst)
    log.asks(*(f"r{number}" for number in range(2000)))
    begin, times = log.now, []

    while log.owner.waiting_total:
        times += [log.now] * len(log.decides())
        if log.owner.waiting_total:
            _wait_for_next(log)

    spare = 500 + (burst or 0)
    assert all(sum(at <= other < at + 1 for other in times) <= spare for at in times[::50])
    assert times[-1] - begin == pytest.approx((2000 - (burst or 10)) / 500, rel=0.01, abs=0.01)


def test_a_fast_window_that_is_used_up_gives_its_tokens_evenly() -> None:
    log = _rate(500, 1.0)
    log.asks(*(f"r{number}" for number in range(3000)))
    begin = log.now
    assert 500 == len(log.decides())
    times = []

    while log.owner.waiting_total:
        _wait_for_next(log)
        log.now += 0.0007  # a timer is late
        times += [log.now - begin] * len(log.decides())

    for start in (1.0, 1.3, 2.25, 3.9, 4.95):
        assert 495 <= sum(start <= at < start + 1 for at in times) <= 500
        assert 20 <= sum(start <= at < start + 0.1 for at in times) <= 75


def test_a_fast_window_has_no_pause_in_each_period() -> None:
    log = _rate(500, 1.0)
    log.asks(*(f"r{number}" for number in range(5000)))
    begin = log.now
    log.decides()
    times = []

    while log.owner.waiting_total:
        _wait_for_next(log)
        times += [log.now - begin] * len(log.decides())

    assert max(later - earlier for earlier, later in pairwise(times)) < 0.025


def test_a_fast_window_catches_up_after_it_was_late() -> None:
    log = _rate(500, 1.0)
    log.asks(*(f"r{number}" for number in range(3000)))
    begin = log.now
    log.decides()
    times = []

    while log.owner.waiting_total:
        _wait_for_next(log)
        if int((log.now - begin) * 10) % 7 == 0:
            log.now += 0.03
        times += [log.now - begin] * len(log.decides())

    assert times[-1] == pytest.approx(3000 / 500, rel=0.02)


def test_a_fast_window_that_was_not_used_up_lets_a_burst_begin_at_once() -> None:
    log = _rate(500, 1.0)
    for number in range(10):
        log.asks(*(f"r{number}.{n}" for n in range(100)))
        assert 100 == len(log.decides())
        log.now += 0.25


def test_a_fast_window_that_has_rested_lets_all_begin_at_once() -> None:
    log = _rate(500, 1.0)
    log.asks(*(f"a{number}" for number in range(500)))
    log.decides()
    log.now += 2.1
    log.asks(*(f"b{number}" for number in range(500)))

    assert 500 == len(log.decides())


def test_times_that_are_close_are_kept_as_one_the_later() -> None:
    log = _rate(10_000, 1.0)
    for number in range(5000):
        log.asks(f"r{number}")
        log.decides()
        log.now += 0.0001

    assert len(log.owner.spent) <= 1000
    assert sum(count for _, count in log.owner.spent) == 5000


def test_a_bucket_lets_as_many_begin_as_it_is_deep_and_then_one_for_each_token() -> None:
    log = _rate(2, 1.0, burst=3)
    log.asks(*"abcdef")

    assert log.decides() == ["a", "b", "c"]

    assert [round(_wait_for_next(log), 3), log.decides()] == [0.5, ["d"]]
    log.now += 0.9
    assert log.decides() == ["e"]
    assert round(_wait_for_next(log), 3) == 0.1


def test_a_bucket_is_never_more_than_full() -> None:
    log = _rate(2, 1.0, burst=3)
    log.asks("a")
    log.decides()
    log.now += 3600
    log.asks(*(f"r{number}" for number in range(10)))

    assert len(log.decides()) == 3


def test_nothing_is_waited_for_when_nobody_waits_or_nothing_may_begin() -> None:
    log = _rate(1, 1.0)
    log.asks("a")
    log.decides()

    assert next_at(log.owner, log.allowed) is None

    log.asks("b")

    assert next_at(log.owner, Allowed(0, 1.0)) is None
    assert next_at(log.owner, Allowed(1, 1.0, 0)) is None
    assert allot(log.owner, Allowed(0, 1.0), log.now + 60) is None


def test_slots_that_are_held_are_not_waited_for() -> None:
    log = LimitLog(Allowed(1))
    log.asks("a", "b")
    log.decides()

    assert next_at(log.owner, log.allowed) is None


def test_a_changed_rate_counts_at_once_and_what_was_taken_counts_too() -> None:
    log = _rate(1, 10.0)
    log.asks("a", "b", "c")
    log.decides()

    log.allowed = Allowed(2, 10.0)

    assert log.decides() == ["b"]
    log.allowed = Allowed(1, 10.0)
    log.now += 9
    assert log.turn() is None
    assert _wait_for_next(log) == 1.0


def test_a_release_of_who_waits_for_a_token_takes_none() -> None:
    log = _rate(1, 10.0)
    log.asks("a", "b", "c")
    log.decides()
    log.releases("b")
    log.now += 10

    assert log.decides() == ["c"]


def test_a_request_that_is_stored_twice_around_the_decision_takes_one_token() -> None:
    log = _rate(2, 10.0)
    log.asks("a")
    again = log.request("a")
    seq = log.append(again)
    log.decides()

    log.fold_late(seq, again)

    assert log.turn() is None
    assert known(log.replayed()) == known(log.owner)


@pytest.mark.parametrize("burst", [None, 3])
def test_a_full_decision_keeps_what_was_spent(burst: int | None) -> None:
    log = _rate(3, 10.0, burst)
    log.asks(*"abcd")
    log.decides()
    log.now += 1
    expected = next_at(log.owner, log.allowed)
    seq = log.store(full(log.owner, log.allowed, log.now))

    replayed = log.replayed(seq)

    assert next_at(log.owner, log.allowed) == pytest.approx(expected)
    assert (replayed.spent, replayed.missing) == (log.owner.spent, log.owner.missing)
    assert log.turn() is None
