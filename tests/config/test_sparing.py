"""A warning for which thousands have reason at once is told now and then, and says for how many."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from penstock.config.logging import get_logger
from penstock.config.process import sparing
from penstock.config.process.sparing import EVERY_S, sparingly

log = get_logger()


@pytest.fixture(autouse=True)
def _begin_anew() -> Iterator[None]:
    sparing.forget()
    yield
    sparing.forget()


def test_of_many_at_once_one_is_told_and_the_next_one_says_how_many_were_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("penstock.config.process.sparing.time.monotonic", lambda: now)
    with capture_logs() as told:
        for number in range(5000):
            sparingly(log, "run_waits_for_broker", run_id=f"r{number}")
        now += EVERY_S
        sparingly(log, "run_waits_for_broker", run_id="last")

    assert [("r0", None), ("last", 4999)] == [(one["run_id"], one.get("unsaid")) for one in told]


def test_other_events_have_their_own_turn() -> None:
    with capture_logs() as told:
        sparingly(log, "pull_quiet")
        sparingly(log, "background_failed", "error", of="timers")
        sparingly(log, "background_failed", "error", of="upkeep")
        sparingly(log, "background_failed", "error", of="upkeep")

    assert [("pull_quiet", "warning"), ("background_failed", "error"), ("background_failed", "error")] == [
        (one["event"], one["log_level"]) for one in told
    ]
