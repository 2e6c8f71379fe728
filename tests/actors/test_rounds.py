"""Rounds of looking after the store: no error ends them, and they take a small share of the time."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from penstock.actors.maintenance import rounds
from penstock.config.process.background import FAILURES, end, start
from penstock.engine.errors import Unavailable

WAIT_S = 5.0


@pytest.mark.parametrize(
    "error", [sqlite3.OperationalError("disk I/O error"), OSError("no space left"), Unavailable("away")]
)
async def test_an_error_ends_its_round_and_the_next_one_comes(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "SHARE_MAX", 1.0)
    FAILURES.clear()
    second = asyncio.Event()
    begun = 0

    async def check(throttle: rounds.Throttle) -> None:
        nonlocal begun
        begun += 1
        if begun > 1:
            second.set()
            return
        raise error

    task = start(rounds.repeat_rounds("retention", check, 0.001), name="rounds")
    async with asyncio.timeout(WAIT_S):
        await second.wait()
    await end(task)

    assert ({} if isinstance(error, Unavailable) else {"retention": 1}) == FAILURES


async def test_the_share_of_the_time_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("penstock.actors.maintenance.rounds.time.monotonic", lambda: now)
    monkeypatch.setattr("penstock.actors.maintenance.rounds.asyncio.sleep", sleep)
    allowed = 1.0
    share = rounds._TimeShare(0.2, lambda: allowed)
    for _ in range(50):
        now += 0.1
        await share.throttle()
    assert now == pytest.approx(5.0)
    allowed = 0.1
    for _ in range(50):
        now += 0.1
        await share.throttle()
    assert now == pytest.approx(5.0 + 50.0, rel=0.1)


async def test_after_long_work_the_pause_is_many_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = 0.0, list[float]()

    async def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    monkeypatch.setattr("penstock.actors.maintenance.rounds.time.monotonic", lambda: now)
    monkeypatch.setattr("penstock.actors.maintenance.rounds.asyncio.sleep", sleep)
    share = rounds._TimeShare(10.0)
    for _ in range(100):
        now += 0.02
        await share.throttle()

    worked_s = 100 * 0.02
    assert worked_s / now == pytest.approx(rounds.SHARE_MAX, rel=0.05)
    assert len(slept) < 100
    assert min(slept) >= 10.0


async def test_a_round_that_waited_in_vain_or_took_long_puts_off_the_next_one_by_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, slept = 0.0, list[float]()

    async def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds
        if len(slept) == 4:
            raise asyncio.CancelledError

    async def check(throttle: rounds.Throttle) -> None:
        nonlocal now
        now += 5.0
        if len(slept) == 1:
            raise Unavailable("no answer")

    monkeypatch.setattr("penstock.actors.maintenance.rounds.time.monotonic", lambda: now)
    monkeypatch.setattr("penstock.actors.maintenance.rounds.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await rounds.repeat_rounds("overdue", check, 10.0, 60.0)
    assert [10.0, 10.0, 60.0, 60.0] == slept
