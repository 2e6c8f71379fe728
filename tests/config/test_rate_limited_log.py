"""A warning that occurs thousands of times at once is logged once in a while, with the number of those left out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from penstock.config.logging import get_logger
from penstock.config.process import rate_limited_log
from penstock.config.process.rate_limited_log import EVERY_S, log_rate_limited

log = get_logger()


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    rate_limited_log.reset()
    yield
    rate_limited_log.reset()


def test_of_many_at_once_one_is_logged_and_the_next_one_counts_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("penstock.config.process.rate_limited_log.time.monotonic", lambda: now)
    with capture_logs() as logged:
        for number in range(5000):
            log_rate_limited(log, "run_waits_for_broker", run_id=f"r{number}")
        now += EVERY_S
        log_rate_limited(log, "run_waits_for_broker", run_id="last")

    assert [("r0", None), ("last", 4999)] == [(one["run_id"], one.get("suppressed")) for one in logged]


def test_other_events_have_their_own_turn() -> None:
    with capture_logs() as logged:
        log_rate_limited(log, "pull_quiet")
        log_rate_limited(log, "background_failed", "error", of="timers")
        log_rate_limited(log, "background_failed", "error", of="sweeper")
        log_rate_limited(log, "background_failed", "error", of="sweeper")

    assert [("pull_quiet", "warning"), ("background_failed", "error"), ("background_failed", "error")] == [
        (one["event"], one["log_level"]) for one in logged
    ]
