"""Durations: what users may write, and the one way it is written back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.definition.durations import NS_MAX, SECOND_NS, parse, text


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("250us", 0.00025),
        ("250µs", 0.00025),
        ("250\u03bcs", 0.00025),
        ("7ns", 7e-9),
        ("0s", 0.0),
        ("30m1h", 5400.0),
        ("87600h", 315_360_000.0),
    ],
)
def test_text_is_read_as_seconds(written: str, seconds: float) -> None:
    assert parse(written) == seconds


@pytest.mark.parametrize(
    ("nanoseconds", "seconds"), [(0, 0.0), (1, 1e-9), (1_500_000_000, 1.5), (NS_MAX, 315_360_000.0)]
)
def test_an_integer_counts_nanoseconds(nanoseconds: int, seconds: float) -> None:
    assert parse(nanoseconds) == seconds


@pytest.mark.parametrize(
    "written",
    ["", " ", "5", "5 minutes", "5M", "1h 30m", "h", "1.h", "1..5h", "s5", "+5s", "٣s", "1e3s", "5s\n", "NaN", "infs"],
)
def test_what_is_no_duration_is_refused_with_an_example(written: str) -> None:
    with pytest.raises(ValueError, match="is not a duration") as caught:
        parse(written)
    assert str(caught.value).endswith("(write for example 500ms, 30s, 5m, 1h30m)")


def test_the_refusal_quotes_the_offender() -> None:
    with pytest.raises(ValueError, match="5 minutes") as caught:
        parse("5 minutes")
    assert str(caught.value) == '"5 minutes" is not a duration (write for example 500ms, 30s, 5m, 1h30m)'


@pytest.mark.parametrize("value", ["-5s", "-0s", "-0.1ns", -1])
def test_a_negative_duration_is_refused(value: str | int) -> None:
    with pytest.raises(ValueError, match="is negative"):
        parse(value)


@pytest.mark.parametrize("value", ["87601h", "9" * 90 + "h", NS_MAX + 1])
def test_more_than_ten_years_is_refused(value: str | int) -> None:
    with pytest.raises(ValueError, match="is longer than 10 years"):
        parse(value)


def test_a_megabyte_of_digits_is_refused_in_one_short_line() -> None:
    with pytest.raises(ValueError, match="is not a duration") as caught:
        parse("9" * 1_000_000 + "\ns")
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0s"),
        (0.5, "500ms"),
        (90, "1m30s"),
        (5400, "1h30m"),
        (3600, "1h"),
        (1.5, "1s500ms"),
        (0.1 + 0.2, "300ms"),
        (1e-9, "1ns"),
        (0.0000015, "1us500ns"),
        (86_400 * 365, "8760h"),
    ],
)
def test_the_normal_form_has_the_largest_units_first(seconds: float, written: str) -> None:
    assert text(seconds) == written


@given(st.integers(min_value=0, max_value=NS_MAX))
def test_every_duration_survives_being_written_and_read(nanoseconds: int) -> None:
    seconds = nanoseconds / SECOND_NS
    assert parse(text(seconds)) == seconds


@given(
    st.lists(
        st.tuples(st.decimals(0, 1000, places=3), st.sampled_from(["h", "m", "s", "ms", "us", "ns"])),
        min_size=1,
        max_size=6,
    )
)
def test_the_normal_form_of_any_text_is_its_own_normal_form(parts: list[tuple[object, str]]) -> None:
    normal = text(parse("".join(f"{number}{unit}" for number, unit in parts)))
    assert text(parse(normal)) == normal


@given(st.text(max_size=20) | st.integers())
def test_any_value_is_a_duration_within_bounds_or_refused_on_one_line(value: str | int) -> None:
    try:
        seconds, refusal = parse(value), ""
    except ValueError as error:
        seconds, refusal = 0.0, str(error)
    assert 0 <= seconds <= NS_MAX / SECOND_NS
    assert refusal.isprintable()
