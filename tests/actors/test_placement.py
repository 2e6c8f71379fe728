"""Which shard shall own which partitions: all of them by exactly one each, evenly, and moved as little as may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.actors.ownership.placement import placed
from penstock.config.limits import PARTITIONS

PLACES = st.sets(st.text(min_size=1, max_size=20), min_size=1, max_size=2 * PARTITIONS)


def owners(places: set[str]) -> dict[int, str]:
    return {number: place for place, numbers in placed(places).items() for number in numbers}


@given(PLACES)
def test_every_partition_has_one_place_and_no_place_two_more_than_another(places: set[str]) -> None:
    found = placed(places)
    counts = sorted(map(len, found.values()))
    assert places == set(found)
    assert list(range(PARTITIONS)) == sorted(number for numbers in found.values() for number in numbers)
    assert counts[-1] - counts[0] <= 1


@given(PLACES)
def test_who_is_asked_and_in_which_order_places_are_given_changes_nothing(places: set[str]) -> None:
    assert placed(sorted(places)) == placed(sorted(places, reverse=True))


@pytest.mark.parametrize(("count", "most"), [(1, 16), (2, 12), (3, 10), (5, 8), (9, 7)])
def test_a_place_that_comes_or_goes_moves_little_more_than_its_share(count: int, most: int) -> None:
    moved = []
    for trial in range(50):
        before = {f"{trial}.{number}" for number in range(count)}
        with_another = {*before, f"{trial}.another"}
        one, other = owners(before), owners(with_another)
        moved.append(sum(one[number] != other[number] for number in range(PARTITIONS)))
    assert min(moved) >= PARTITIONS // (count + 1)
    assert sum(moved) / len(moved) <= most


def test_without_anybody_nobody_has_anything() -> None:
    assert {} == placed(set())
