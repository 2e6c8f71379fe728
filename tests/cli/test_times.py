"""Times and durations: what people may write, and what they read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest
from msgspec import UNSET

from penstock.cli.terminal import times
from tests.cli.conftest import Penstock, Service

NOW = datetime(2026, 1, 1, 0, 3, 5, tzinfo=UTC)


def ahead_s(text: str) -> float:
    """How far ahead of now a moment is, in s."""
    return (datetime.fromisoformat(text) - datetime.now(UTC)).total_seconds()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "0ms"),
        (0.0124, "12ms"),
        (0.9996, "1.0s"),
        (1.54, "1.5s"),
        (9.96, "10s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (185, "3m05s"),
        (7620, "2h07m"),
        (86399.6, "1d00h"),
        (273600, "3d04h"),
    ],
)
def test_a_duration_reads_as_people_say_it(seconds: float, text: str) -> None:
    assert text == times.lasting(seconds)


def test_what_has_not_ended_lasts_until_now_and_what_has_not_started_has_no_duration() -> None:
    assert "" == times.took(None, None)
    assert "3m05s" == times.took("2026-01-01T00:00:00Z", None, NOW)
    assert "12ms" == times.took("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.012Z")


def test_a_moment_has_no_microseconds_and_what_is_none_stays() -> None:
    assert "2026-01-01T00:00:00Z" == times.moment("2026-01-01T00:00:00.987654Z")
    assert "2026-01-01T00:00:00.987Z" == times.moment("2026-01-01T01:00:00.987654+01:00", "milliseconds")
    assert ("yesterday", "") == (times.moment("yesterday"), times.moment(UNSET))


def test_on_a_terminal_a_moment_is_an_age(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "2026-01-01T00:00:00Z" == times.age("2026-01-01T00:00:00.5Z", NOW)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    shown = [
        "2026-01-01T00:03:01Z",
        "2026-01-01T00:00:00.5Z",
        "2025-12-31T00:00:00Z",
        "2025-12-20T00:00:00Z",
        "2026-01-01T00:04:00Z",
    ]
    assert ["4s ago", "3m ago", "24h ago", "12d ago", "in 55s"] == [times.age(text, NOW) for text in shown]
    assert ("odd", "") == (times.age("odd", NOW), times.age(UNSET, NOW))


@pytest.mark.parametrize(("text", "ago_s"), [("1h", 3600), ("-90s", 90), ("1h30m", 5400), ("7d", 604800), ("0s", 0)])
def test_a_past_moment_may_be_a_while_ago(text: str, ago_s: float) -> None:
    assert -ago_s == pytest.approx(ahead_s(times.Past().convert(text, None, None)), abs=5)


@pytest.mark.parametrize(("text", "in_s"), [("+30s", 30), ("30s", 30), ("+1h30m", 5400), ("+7d", 604800)])
def test_a_future_moment_may_be_a_while_from_now(text: str, in_s: float) -> None:
    assert in_s == pytest.approx(ahead_s(times.Future().convert(text, None, None)), abs=5)


@pytest.mark.parametrize("kind", [times.Past(), times.Future()])
@pytest.mark.parametrize(
    "text", ["", "noon", "5", "+", "2026-01-31", "2026-01-31T12:00:00", "1h ago", "9" * 30 + "d", "100000h", "--1h"]
)
def test_what_is_neither_a_time_nor_a_while_is_refused(kind: click.ParamType[str], text: str) -> None:
    with pytest.raises(click.BadParameter, match="neither a time such as"):
        kind.convert(text, None, None)


@pytest.mark.parametrize("kind", [times.Past(), times.Future()])
def test_a_time_in_any_zone_is_sent_in_utc(kind: click.ParamType[str]) -> None:
    assert "2026-01-01T00:00:00Z" == kind.convert("2026-01-01T01:00:00+01:00", None, None)
    assert "2026-01-01T00:00:00.123456Z" == kind.convert("2026-01-01 00:00:00.123456Z", None, None)


def test_a_start_half_a_minute_ahead_is_sent_as_a_time(penstock: Penstock, service: Service) -> None:
    service.on("POST /runs", {"run_id": "r1", "status": "scheduled"})
    assert 0 == penstock("run", "start", "w", "--at", "+30s").code
    (sent,) = service.bodies("POST /runs")
    assert isinstance(sent, dict)
    assert timedelta(seconds=30).total_seconds() == pytest.approx(ahead_s(sent["run_at"]), abs=5)
