"""What becomes of a run that finds no free slot: it skips, or it replaces another."""

from __future__ import annotations

from penstock.engine.limits.names import OnLimit
from penstock.engine.limits.records import Allowed
from tests.engine.limits.log import LimitLog, holders, known, waits

SKIP, REPLACE = OnLimit.SKIP, OnLimit.REPLACE


def test_who_skips_begins_where_there_is_room_and_is_refused_where_there_is_not() -> None:
    log = LimitLog(Allowed(1))
    log.asks("a", "b", "c", on_limit=SKIP)

    decided = log.turn()

    assert decided is not None
    assert [slot.holder for slot in decided.granted] == ["a"]
    assert decided.refused == (("b", "limit"), ("c", "limit"))
    assert waits(log.owner) == []


def test_who_skips_is_refused_by_a_limit_of_zero() -> None:
    log = LimitLog(Allowed(0))
    log.asks("a", on_limit=SKIP)

    decided = log.turn()

    assert decided is not None
    assert decided.refused == (("a", "limit"),)


def test_who_queues_is_not_refused_because_another_skips() -> None:
    log = LimitLog(Allowed(1))
    log.asks("a", "b")
    log.asks("c", on_limit=SKIP)

    log.turn()

    assert (holders(log.owner), waits(log.owner)) == (["a"], ["b"])


def test_who_replaces_evicts_the_oldest_holder_and_begins_when_that_one_has_ended() -> None:
    log = LimitLog(Allowed(2))
    log.asks("a")
    log.decides()
    log.now += 1
    log.asks("b")
    log.decides()
    log.asks("c", on_limit=REPLACE)

    decided = log.turn()

    assert decided is not None
    assert (decided.evicted, decided.refused, decided.granted) == (("a",), (), ())
    assert holders(log.owner) == ["a", "b"]
    assert log.turn() is None
    log.releases("a")
    assert log.decides() == ["c"]
    assert log.owner.evicting == set()


def test_who_replaces_takes_the_place_of_who_waits_before_it_evicts_anybody() -> None:
    log = LimitLog(Allowed(1))
    log.asks("a", on_limit=REPLACE)
    log.decides()
    log.asks("b", on_limit=REPLACE)
    log.turn()
    log.asks("c", on_limit=REPLACE)

    decided = log.turn()

    assert decided is not None
    assert (decided.refused, decided.evicted) == ((("b", "replaced"),), ())
    assert waits(log.owner) == ["c"]


def test_of_many_that_replace_at_once_the_newest_is_left() -> None:
    log = LimitLog(Allowed(1))
    log.asks(*(f"r{number}" for number in range(100)), on_limit=REPLACE)

    decided = log.turn()

    assert decided is not None
    assert [slot.holder for slot in decided.granted] == ["r0"]
    assert decided.evicted == ("r0",)
    assert decided.refused == tuple((f"r{number}", "replaced") for number in range(1, 99))
    assert waits(log.owner) == ["r99"]


def test_who_replaces_begins_at_once_where_there_is_room() -> None:
    log = LimitLog(Allowed(2))
    log.asks("a")
    log.decides()
    log.asks("b", on_limit=REPLACE)

    decided = log.turn()

    assert decided is not None
    assert [slot.holder for slot in decided.granted] == ["b"]
    assert (decided.evicted, decided.refused) == ((), ())


def test_nobody_more_is_evicted_while_a_slot_is_about_to_be_free() -> None:
    log = LimitLog(Allowed(2))
    log.asks("a", "b")
    log.decides()
    log.asks("c", on_limit=REPLACE)
    log.turn()
    log.releases("c")
    log.asks("d", on_limit=REPLACE)

    log.turn()

    assert log.owner.evicting == {"a"}
    assert (holders(log.owner), waits(log.owner)) == (["a", "b"], ["d"])


def test_who_replaces_does_so_once() -> None:
    log = LimitLog(Allowed(1))
    log.asks("a")
    log.decides()
    log.asks("b", on_limit=REPLACE)
    log.turn()
    log.asks("c")

    assert log.turn() is None
    assert waits(log.owner) == ["b", "c"]


def test_a_refused_one_whose_request_is_stored_again_behind_the_decision_is_granted_a_slot_as_anybody() -> None:
    log = LimitLog(Allowed(1))
    log.asks("a", "b", on_limit=SKIP)
    assert log.decides() == ["a"]
    log.asks("b", on_limit=SKIP)
    log.releases("a")

    assert log.decides() == ["b"]
    assert known(log.replayed()) == known(log.owner)
    log.releases("b")
    assert (holders(log.owner), waits(log.owner)) == ([], [])


def test_a_refused_one_whose_request_is_stored_twice_around_the_decision_does_not_wait_again() -> None:
    log = LimitLog(Allowed(0))
    log.asks("a", on_limit=SKIP)
    again = log.request("a", on_limit=SKIP)
    seq = log.append(again)
    log.turn()

    log.fold_late(seq, again)

    assert waits(log.owner) == []
    assert known(log.replayed()) == known(log.owner)
