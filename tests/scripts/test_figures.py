"""Percentiles, runs per second, and the result that the counts of a load give."""

from __future__ import annotations

import math

import pytest
from load.counts import Counts
from load.figures import BARS, per_second, percentile, percentiles, sparkline
from load.targets import ROWS, Row


@pytest.mark.parametrize(("share", "expected"), [(0.5, 2), (0.75, 3), (0.76, 4), (0.99, 4), (1.0, 4), (0.0, 1)])
def test_percentiles_are_values_that_occurred(share: float, expected: int) -> None:
    assert expected == percentile([1, 2, 3, 4], share)


def test_nothing_has_no_percentiles() -> None:
    assert math.isnan(percentile([], 0.5))
    assert None is percentiles([])


def test_seconds_without_a_run_count_zero() -> None:
    assert [2, 0, 1] == per_second([10.0, 10.9, 12.5, 9.0], begin=10.0)
    assert [] == per_second([], begin=10.0)


def test_a_sparkline_is_never_longer_than_a_line() -> None:
    assert BARS[0] + BARS[-1] == sparkline([0, 5])
    assert 60 >= len(sparkline(range(1000)))


def test_a_result_is_complete_only_when_all_accepted_runs_have_ended() -> None:
    counts = Counts(3)
    counts.begun = 3
    counts.accept(counts.begin, 2)
    counts.end("completed", counts.begin)
    assert not counts.result("closed", 3).complete
    counts.end("failed", counts.begin)
    result = counts.result("closed", 3)
    assert result.complete
    assert {"completed": 1, "failed": 1} == result.ended
    counts.fail(OSError("no route"))
    assert not counts.result("closed", 3).complete


@pytest.mark.parametrize(("value", "verdict"), [(2, "missed"), (3, "must"), (5, "aim")])
def test_more_can_be_better(value: float, verdict: str) -> None:
    assert verdict == Row("", "", must=3, aim=5).verdict(value)


@pytest.mark.parametrize(("value", "verdict"), [(6, "missed"), (5, "must"), (3, "aim")])
def test_less_can_be_better(value: float, verdict: str) -> None:
    assert verdict == Row("", "", must=5, aim=3, more=False).verdict(value)


def test_no_aim_is_below_what_must_be() -> None:
    assert all(row.reaches(row.aim, row.must) for row in ROWS.values() if row.must is not None and row.aim is not None)
