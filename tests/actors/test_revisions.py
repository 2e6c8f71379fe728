from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from penstock.actors.runs.shared.revisions import Revisions

NUMBERS = some.integers(0, 9) | some.integers(0, 2**64 - 1)


@given(some.lists(some.tuples(some.sampled_from(["add", "discard"]), NUMBERS)), NUMBERS)
def test_they_are_a_set_of_numbers(changes: list[tuple[str, int]], asked: int) -> None:
    revisions, expected = Revisions(), set[int]()
    for change, number in changes:
        getattr(revisions, change)(number)
        getattr(expected, change)(number)
    assert expected == revisions
    assert (asked in expected) == (asked in revisions)
    assert sorted(expected) == list(revisions)


def test_they_can_be_forgotten_at_once() -> None:
    revisions = Revisions()
    revisions.add(7)
    revisions.clear()
    assert set() == revisions
    assert 7 not in revisions
