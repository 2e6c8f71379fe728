"""Cron schedules as people expect them, on the days when clocks change, too. Every instant is written with its
offset."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.errors import Invalid
from penstock.engine.trigger.cron import Cron

AMSTERDAM, NEW_YORK, LORD_HOWE = "Europe/Amsterdam", "America/New_York", "Australia/Lord_Howe"


def after(expression: str, zone: str, begin: str, count: int) -> list[str]:
    """The next instants, as the clock in the zone shows them."""
    cron, instant, found = Cron(expression, zone), datetime.fromisoformat(begin), []
    for _ in range(count):
        following = cron.next(instant)
        assert following is not None
        instant = following
        found.append(instant.astimezone(ZoneInfo(zone)).isoformat())
    return found


@pytest.mark.parametrize(
    ("expression", "begin", "expected"),
    [
        ("0 9 * * MON-FRI", "2026-01-02T10:00+00:00", "2026-01-05T09:00:00+00:00"),
        ("*/15 * * * *", "2026-01-01T00:00:00.5+00:00", "2026-01-01T00:15:00+00:00"),
        ("30 */10 * * * *", "2026-01-01T00:00:30+00:00", "2026-01-01T00:10:30+00:00"),
        ("0 0 29 2 *", "2026-01-01T00:00+00:00", "2028-02-29T00:00:00+00:00"),
        ("0 0 L * *", "2026-02-01T00:00+00:00", "2026-02-28T00:00:00+00:00"),
        ("0 12 * * 5#2", "2026-01-01T00:00+00:00", "2026-01-09T12:00:00+00:00"),
    ],
)
def test_the_next_instant_comes_strictly_after(expression: str, begin: str, expected: str) -> None:
    assert [expected] == after(expression, "UTC", begin, 1)


@pytest.mark.parametrize("expression", ["30 2 * * *", "0 30 2 * * *"])
@pytest.mark.parametrize(
    ("zone", "begin", "expected"),
    [
        (
            AMSTERDAM,
            "2026-03-28T00:00+01:00",
            ["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
        ),
        (
            AMSTERDAM,
            "2026-10-24T00:00+02:00",
            ["2026-10-24T02:30:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"],
        ),
        (
            NEW_YORK,
            "2026-03-07T00:00-05:00",
            ["2026-03-07T02:30:00-05:00", "2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"],
        ),
        (
            LORD_HOWE,
            "2026-10-03T00:00+10:30",
            ["2026-10-03T02:30:00+10:30", "2026-10-04T02:30:00+11:00", "2026-10-05T02:30:00+11:00"],
        ),
    ],
)
def test_a_time_of_day_comes_once_a_day_also_when_clocks_change(
    expression: str, zone: str, begin: str, expected: list[str]
) -> None:
    assert expected == after(expression, zone, begin, 3)


@pytest.mark.parametrize(
    ("zone", "expression", "begin", "expected"),
    [
        # The clocks skip it: it comes at the change.
        (LORD_HOWE, "15 2 * * *", "2026-10-03T12:00+10:30", ["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"]),
        (NEW_YORK, "30 1 * * *", "2026-10-31T12:00-04:00", ["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"]),
        # The clocks show it twice: it comes the first time.
        (LORD_HOWE, "45 1 * * *", "2026-04-04T12:00+11:00", ["2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"]),
        # At midnight, in a zone that changes then.
        (
            "America/Santiago",
            "0 0 * * *",
            "2026-09-05T12:00-04:00",
            ["2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"],
        ),
        # Two that are skipped together come once.
        (
            AMSTERDAM,
            "0,30 2 * * *",
            "2026-03-28T12:00+01:00",
            ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"],
        ),
        # Asked between the two times that the clock shows it: the first is over.
        (AMSTERDAM, "30 2 * * *", "2026-10-25T02:10+01:00", ["2026-10-26T02:30:00+01:00", "2026-10-27T02:30:00+01:00"]),
    ],
)
def test_a_time_of_day_that_is_skipped_or_repeated(zone: str, expression: str, begin: str, expected: list[str]) -> None:
    assert expected == after(expression, zone, begin, 2)


@pytest.mark.parametrize(
    ("zone", "expression", "begin", "expected"),
    [
        (AMSTERDAM, "*/30 * * * *", "2026-03-29T01:00+01:00", ["01:30:00+01:00", "03:00:00+02:00", "03:30:00+02:00"]),
        (
            AMSTERDAM,
            "*/30 * * * *",
            "2026-10-25T02:00+02:00",
            ["02:30:00+02:00", "02:00:00+01:00", "02:30:00+01:00", "03:00:00+01:00"],
        ),
        (NEW_YORK, "0 * * * *", "2026-11-01T00:30-04:00", ["01:00:00-04:00", "01:00:00-05:00", "02:00:00-05:00"]),
        (NEW_YORK, "0 * * * *", "2026-03-08T01:00-05:00", ["03:00:00-04:00", "04:00:00-04:00"]),
        (
            LORD_HOWE,
            "*/15 * * * *",
            "2026-10-04T01:40+10:30",
            ["01:45:00+10:30", "02:30:00+11:00", "02:45:00+11:00", "03:00:00+11:00"],
        ),
        (
            LORD_HOWE,
            "*/15 * * * *",
            "2026-04-05T01:40+11:00",
            ["01:45:00+11:00", "01:30:00+10:30", "01:45:00+10:30", "02:00:00+10:30"],
        ),
        (LORD_HOWE, "*/15 3 * * *", "2026-10-04T01:00+10:30", ["03:00:00+11:00", "03:15:00+11:00"]),
    ],
)
def test_what_repeats_goes_by_real_time_when_clocks_change(
    zone: str, expression: str, begin: str, expected: list[str]
) -> None:
    assert expected == [instant.partition("T")[2] for instant in after(expression, zone, begin, len(expected))]


@given(
    zone=st.sampled_from(
        [AMSTERDAM, NEW_YORK, LORD_HOWE, "America/Santiago", "Asia/Kathmandu", "Africa/Casablanca", "UTC"]
    ),
    begin=st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),
    minutes=st.sampled_from([5, 10, 15, 20, 30]),
)
def test_what_comes_every_few_minutes_does_so_on_every_clock_in_every_zone(
    zone: str, begin: datetime, minutes: int
) -> None:
    """By trying each second: the next one whose wall clock matches."""
    found = Cron(f"*/{minutes} * * * *", zone).next(begin)
    instant = begin.replace(second=0, microsecond=0) + timedelta(minutes=1)
    while instant.astimezone(ZoneInfo(zone)).minute % minutes:
        instant += timedelta(minutes=1)
    assert instant == found


@settings(max_examples=25, deadline=None)
@given(
    zone=st.sampled_from([AMSTERDAM, NEW_YORK, LORD_HOWE, "America/Santiago", "Africa/Casablanca"]),
    year=st.integers(2020, 2030),
    minute=st.integers(0, 24 * 60 - 1),
)
def test_a_time_of_day_comes_on_every_day_of_the_year_once(zone: str, year: int, minute: int) -> None:
    cron = Cron(f"{minute % 60} {minute // 60} * * *", zone)
    here = ZoneInfo(zone)
    instant: datetime | None = datetime(year, 1, 1, tzinfo=here) - timedelta(seconds=1)
    days = []
    while instant is not None and (instant := cron.next(instant)) is not None and instant.astimezone(here).year == year:
        days.append(instant.astimezone(here).date())
    assert len(set(days)) == len(days) == (366 if year % 4 == 0 else 365)


@pytest.mark.parametrize(
    ("expression", "zone", "words"),
    [
        ("", "UTC", "wrong number of fields"),
        ("* * * *", "UTC", "wrong number of fields"),
        ("* * * * * * *", "UTC", "wrong number of fields"),
        ("60 * * * *", "UTC", "bad minute"),
        ("x * * * *", "UTC", "bad minute"),
        ("0 0 30 2 *", "UTC", "bad day-of-month"),
        ("*" * 300, "UTC", "256 is the most"),
        ("* * * * *", "Mars/Base", 'timezone "Mars/Base" is not known'),
        ("* * * * *", "../../etc/passwd", "is not known"),
        ("* * * * *", "", "is not known"),
        ("* * * * *", "Europe", "is not known"),
    ],
)
def test_what_is_no_schedule_is_refused_with_its_reason(expression: str, zone: str, words: str) -> None:
    with pytest.raises(Invalid, match=words.replace("*", r"\*")):
        Cron(expression, zone)


def test_both_problems_are_named_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        Cron("x", "y")
    assert ["expression", "timezone"] == [problem.split()[0] for problem in caught.value.problems]


def test_the_rarest_schedule_is_found() -> None:
    assert "2028-02-29T00:00:00+01:00" == after("* * 29 2 *", AMSTERDAM, "2026-01-01T00:00+00:00", 1)[0]
