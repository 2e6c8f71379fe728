"""What a worker's own limits of a task type allow, and how they are written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.errors import Invalid
from penstock.worker import Worker
from penstock.worker.local_limits import OPENS_LATE_S, OPENS_S_MIN, Rate, TaskAllowance, TaskLimits, read_rate

PAGE = Path(__file__).parents[2] / "docs" / "workers.md"


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10/s", Rate(10, 1)),
        ("600/m", Rate(600, 60)),
        ("5/2s", Rate(5, 2)),
        ("1/h", Rate(1, 3600)),
        ("1/1m30s", Rate(1, 90)),
        ("100000/ms", Rate(100_000, 0.001)),
    ],
)
def test_a_rate_is_a_count_and_a_time(text: str, rate: Rate) -> None:
    assert read_rate(text) == rate


@pytest.mark.parametrize(
    ("rate", "problem"),
    [
        ("10", 'rate must be a count and a time as in "10/s", "600/m" or "5/2s", not "10"'),
        ("/s", "rate must be a count and a time"),
        ("ten/s", "rate must be a count and a time"),
        ("1.5/s", "rate must be a count and a time"),
        ("-1/s", "rate must be a count and a time"),
        ("10 / s", "rate must be a count and a time"),
        (10, "rate must be a count and a time .* not 10"),
        ("10/day", 'rate "10/day": '),
        ("0/s", 'rate "0/s": the count must be from 1 to 100000'),
        ("100001/s", 'rate "100001/s": the count must be from 1 to 100000'),
        ("1/0s", 'rate "1/0s": the time must be from 1ms to 24h'),
        ("1/25h", 'rate "1/25h": the time must be from 1ms to 24h'),
    ],
)
def test_a_bad_rate_is_refused_with_its_task_type(rate: Any, problem: str) -> None:
    with pytest.raises(Invalid, match=f'task "mail": {problem}'):
        Worker().task("mail", rate=rate)(lambda: None)


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", True])
def test_a_bad_max_concurrency_is_refused_with_its_task_type(count: Any) -> None:
    with pytest.raises(Invalid, match=f'task "mail": max_concurrency must be a whole number from 1, not {count!r}'):
        Worker().task("mail", max_concurrency=count)(lambda: None)


def test_all_that_is_wrong_with_a_task_is_reported_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        Worker().task("a b", rate="often", max_concurrency=0)(lambda a, b, c: None)
    assert len(caught.value.problems) == 4


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.integers(1, 5), st.integers(1, 4), st.lists(st.tuples(st.floats(0, 2), st.booleans()), max_size=60))
def test_no_span_sees_more_than_the_rate_and_what_is_allowed_is_never_late(
    count: int, most: int, moves: list[tuple[float, bool]]
) -> None:
    clock = _Clock()
    allowance = TaskAllowance(TaskLimits(f"{count}/s", most), clock)
    begun: list[float] = []
    running = 0
    for pause_s, ends in moves:
        clock.now += pause_s
        if ends and running:
            allowance.end()
            running -= 1
        within = [at for at in begun if clock.now - at < 1]
        assert allowance.room == min(count - len(within), most - running)
        opens_in_s = allowance.opens_in_s
        assert (opens_in_s is None) == (len(within) < count)
        if opens_in_s is not None:
            assert opens_in_s == max(within[len(within) - count] + 1 - clock.now + OPENS_LATE_S, OPENS_S_MIN)
        while allowance.room > 0:
            allowance.begin()
            begun.append(clock.now)
            running += 1
    assert all(later - first >= 1 for first, later in zip(begun, begun[count:], strict=False))


def test_the_example_of_the_page_is_accepted() -> None:
    """Its functions are registered with the limits that the page names."""
    (example,) = re.findall(r"```python\n([^`]*max_concurrency[^`]*)```", PAGE.read_text())
    names: dict[str, Any] = {"Worker": Worker, "worker": Worker()}
    exec(example, names)
    found = {function.name: function.limits for function in names["worker"]._functions.values()}
    assert found == {"send-mail": TaskLimits("10/s"), "render": TaskLimits(None, 2)}
