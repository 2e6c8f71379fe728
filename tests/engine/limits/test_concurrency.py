"""Slots that are held: never more than the limit, nobody forgotten, by priority and then by arrival."""

from __future__ import annotations

import pytest

from penstock.engine.limits.allot import allot
from penstock.engine.limits.names import LimitKind, LimitName
from penstock.engine.limits.records import Allowed
from tests.engine.limits.log import LimitLog, holders, known, waits


def test_as_many_begin_as_the_limit_allows_in_order_of_arrival() -> None:
    log = LimitLog(Allowed(2))
    log.asks("c", "a", "b")

    assert log.decides() == ["c", "a"]

    assert (holders(log.owner), waits(log.owner)) == (["a", "c"], ["b"])
    assert log.decides() == []


def test_who_waits_begins_when_a_holder_has_ended() -> None:
    log = LimitLog()
    log.asks("a", "b", "c")
    log.decides()

    log.releases("a")

    assert log.decides() == ["b"]
    assert waits(log.owner) == ["c"]


def test_a_larger_priority_begins_first_then_who_came_first() -> None:
    log = LimitLog(Allowed(10))
    log.asks("low", priority=-1)
    log.asks("first", "second")
    log.asks("high", priority=100)

    assert log.decides() == ["high", "first", "second", "low"]


def test_one_decision_has_all_that_can_begin_now() -> None:
    log = LimitLog(Allowed(3))
    log.asks(*"abcde")

    decided = log.turn()

    assert decided is not None
    assert [granted.holder for granted in decided.granted] == ["a", "b", "c"]
    assert {granted.at for granted in decided.granted} == {log.now}
    assert decided.upto == 5
    assert decided.allowed == Allowed(3)


def test_nothing_is_decided_when_nothing_changes() -> None:
    log = LimitLog()

    assert log.turn() is None

    log.asks("a", "b")
    log.turn()

    assert log.turn() is None


def test_what_is_decided_changes_nothing_until_it_is_stored() -> None:
    log = LimitLog(Allowed(2))
    log.asks(*"abc")
    before = known(log.owner)

    first = allot(log.owner, log.allowed, log.now)

    assert first == allot(log.owner, log.allowed, log.now)
    assert known(log.owner) == before


@pytest.mark.parametrize("ended", ["a", "b"])
def test_a_request_that_was_picked_but_is_released_before_it_is_stored_is_not_granted(ended: str) -> None:
    log = LimitLog(Allowed(1))
    log.asks("a", "b")
    allot(log.owner, log.allowed, log.now)

    log.releases(ended)

    assert log.decides() == [{"a": "b", "b": "a"}[ended]]


def test_zero_lets_nothing_begin_and_raising_it_does() -> None:
    log = LimitLog(Allowed(0))
    log.asks("a", "b")

    assert log.turn() is None
    assert log.decides(Allowed(1)) == ["a"]


def test_a_lowered_limit_ends_nobody_and_lets_nobody_begin_until_there_is_room() -> None:
    log = LimitLog(Allowed(3))
    log.asks(*"abcd")
    log.decides()
    log.allowed = Allowed(1)

    assert log.turn() is None
    assert holders(log.owner) == ["a", "b", "c"]
    log.releases("a", "b")
    assert log.turn() is None
    log.releases("c")
    assert log.decides() == ["d"]


def test_the_newest_request_says_what_counts_where_nothing_is_registered() -> None:
    log = LimitLog(Allowed(1))
    log.asks("a")
    log.allowed = Allowed(7)
    log.asks("b")

    assert log.owner.allowed == Allowed(7)


def test_a_request_of_a_holder_or_of_who_waits_is_ignored() -> None:
    log = LimitLog()
    log.asks("a", "b", "c")
    log.decides()

    log.asks("a", "b", priority=5)

    assert (holders(log.owner), waits(log.owner)) == (["a"], ["b", "c"])
    log.releases("a")
    assert log.decides() == ["b"]


def test_a_release_of_nobody_is_ignored() -> None:
    log = LimitLog()
    log.asks("a", "b")
    log.decides()

    log.releases("nobody")

    assert log.turn() is None
    assert holders(log.owner) == ["a"]


def test_who_gives_up_waiting_is_not_granted() -> None:
    log = LimitLog()
    log.asks("a", "b", "c")
    log.decides()

    log.releases("b", "a")

    assert log.decides() == ["c"]
    log.releases("c")
    assert log.turn() is None


def test_a_request_that_comes_behind_its_release_is_granted_and_given_back() -> None:
    log = LimitLog()
    log.releases("a")
    log.asks("a", "b")

    assert log.decides() == ["a"]
    log.releases("a")
    assert log.decides() == ["b"]


def test_a_slot_names_its_run_its_step_and_since_when() -> None:
    log = LimitLog(Allowed(2), LimitKind.EXECUTIONS)
    log.store(log.request("run-1.fetch.0.1", step_id="fetch"))
    log.store(log.request("another", step_id="fetch"))

    log.decides()

    slot = log.owner.holders["run-1.fetch.0.1"]
    assert (slot.run_id, slot.step_id, slot.at, slot.order) == ("run-1", "fetch", log.now, 1)
    assert log.owner.holders["another"].run_id == "another"
    assert log.owner.name == LimitName(LimitKind.EXECUTIONS, "scope")


def test_time_never_goes_back() -> None:
    log = LimitLog()
    log.asks("a")
    log.decides()
    log.releases("a")
    log.asks("b")
    log.now -= 60

    decided = log.turn()

    assert decided is not None
    assert decided.at == log.now + 60
