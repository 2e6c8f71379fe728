"""Durations and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("1h30m", 5400),
        ("24h", 86400),
        ("7d", 604800),
        ("1.5h", 5400),
        ("250us", 0.00025),
        ("0s", 0),
    ],
)
def test_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert seconds == parse_duration(text)


@pytest.mark.parametrize("text", ["", "5", "-5s", "5 s", "s", "1h30", "1e3s", "5S", "\u0665s", "5s\n"])
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        parse_duration(text)


@given(st.integers(0, 10**15))
def test_duration_reads_back_what_it_writes(duration_us: int) -> None:
    seconds = parse_duration(f"{duration_us}us")
    assert seconds == parse_duration(format_duration(seconds))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1024", 1024),
        ("10GiB", 10 * 2**30),
        ("10gib", 10 * 2**30),
        ("1.5 MiB", 1572864),
        ("64KB", 64000),
        ("7B", 7),
    ],
)
def test_size_is_read_in_bytes(text: str, size: int) -> None:
    assert size == parse_size(text)


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "10 GB/s", "10Gi", "1,5MB"])
def test_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        parse_size(text)


@given(st.integers(0, 2**50))
def test_size_reads_back_what_it_writes(size: int) -> None:
    assert size == parse_size(format_size(size))


def test_size_is_written_in_the_largest_even_unit() -> None:
    assert ["10GiB", "1536MiB", "1000", "0"] == [format_size(size) for size in (10 * 2**30, 1536 * 2**20, 1000, 0)]
