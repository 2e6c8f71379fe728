"""Turns between fair values, before priority counts within one."""

from __future__ import annotations

from penstock.engine.limits.listing import first_waiting, place
from penstock.engine.limits.records import Allowed
from tests.engine.limits.log import LimitLog


def _served(log: LimitLog, count: int) -> list[str]:
    """Who begins next, one after the other: each holder ends at once."""
    order: list[str] = []
    while len(order) < count:
        begun = log.decides()
        order += begun
        log.releases(*begun)
    return order


def test_ten_of_another_are_served_by_turns_with_ten_thousand() -> None:
    log = LimitLog(Allowed(1))
    log.asks(*(f"a{number}" for number in range(10_000)), fair="a")
    _served(log, 5)
    log.asks(*(f"b{number}" for number in range(10)), fair="b")

    served = _served(log, 30)

    assert served.index("b9") + 1 <= 20
    assert [holder for holder in served if holder[0] == "b"] == [f"b{number}" for number in range(10)]


def test_turns_go_on_over_many_slots_and_decisions() -> None:
    log = LimitLog(Allowed(4))
    log.asks(*(f"a{number}" for number in range(8)), fair="a")
    log.asks("b0", "b1", fair="b")
    log.asks("c0", fair="c")

    assert log.decides() == ["a0", "b0", "c0", "a1"]
    log.releases("a0", "b0")
    assert log.decides() == ["b1", "a2"]
    assert log.owner.turn == "a"


def test_a_high_priority_of_one_does_not_take_the_turn_of_another() -> None:
    log = LimitLog(Allowed(10))
    log.asks("a1", "a2", fair="a", priority=100)
    log.asks("b-low", fair="b", priority=-1)
    log.asks("b-high", fair="b", priority=1)

    assert log.decides() == ["a1", "b-high", "a2", "b-low"]


def test_requests_without_a_fair_value_take_turns_as_if_they_had_one() -> None:
    log = LimitLog(Allowed(10))
    log.asks("x1", "x2", "x3")
    log.asks("a1", fair="a")

    assert log.decides() == ["a1", "x1", "x2", "x3"]


def test_a_place_is_the_number_of_those_that_are_served_until_then() -> None:
    log = LimitLog(Allowed(1))
    log.asks("holder", fair="b")
    log.decides()
    log.asks("a1", "a2", "a3", "a4", fair="a")
    log.asks("b1", "b2", fair="b")
    log.asks("c1", fair="c", priority=3)
    log.asks("a-high", fair="a", priority=1)
    listed = [waiter.holder for waiter in first_waiting(log.owner, 100)]
    places = [place(log.owner, holder) for holder in listed]

    log.releases("holder")

    assert listed == ["c1", "a-high", "b1", "a1", "b2", "a2", "a3", "a4"]
    assert places == [1, 2, 3, 4, 5, 6, 7, 8]
    assert _served(log, 8) == listed


def test_only_who_waits_has_a_place() -> None:
    log = LimitLog()
    log.asks("holder")
    log.decides()

    assert place(log.owner, "holder") is None
    assert place(log.owner, "nobody") is None
    assert first_waiting(log.owner, 10) == []


def test_the_list_of_who_waits_is_as_long_as_asked_for_and_says_all_of_each() -> None:
    log = LimitLog(Allowed(0))
    log.asks(*(f"a{number}.0" for number in range(5)), fair="a", priority=2)
    log.asks("b.0", fair="b")

    listed = first_waiting(log.owner, 3)

    assert [(waiter.place, waiter.holder) for waiter in listed] == [(1, "a0.0"), (2, "b.0"), (3, "a1.0")]
    first = listed[0]
    assert (first.run_id, first.step_id, first.priority, first.fair, first.order) == ("a0", None, 2, "a", 1)
    assert log.owner.waiting_total == 6
