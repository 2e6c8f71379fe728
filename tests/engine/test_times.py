"""Instants as text: what replaces the standard library's own must write the same."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.engine.times import rfc3339, rfc3339_ns

FIRST, LAST = datetime(1, 1, 2, tzinfo=UTC).timestamp(), datetime(9999, 12, 30, tzinfo=UTC).timestamp()


@given(st.floats(FIRST, LAST))
@example(1e9 + 0.9999999)  # the next second
@example(-0.0000004)
@example(-1.5)
@example(0.0000005)  # to the even one
def test_seconds_are_written_as_datetime_writes_them(at: float) -> None:
    expected = datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    assert rfc3339(at) == expected


@given(st.integers(int(FIRST), int(LAST)), st.integers(0, 10**9 - 1))
def test_nanoseconds_are_rounded_down(second: int, rest: int) -> None:
    assert rfc3339_ns(second * 10**9 + rest) == rfc3339(float(second))[:20] + f"{rest // 1000:06d}Z"
