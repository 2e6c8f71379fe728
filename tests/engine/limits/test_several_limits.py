"""A run that asks one limit after the other: each grant says how many it asks after this one."""

from __future__ import annotations

from penstock.engine.limits.compaction import waiting_before, written_again
from penstock.engine.limits.records import Allowed
from tests.engine.limits.log import LimitLog


def test_a_grant_says_how_many_limits_the_run_asks_after_this_one() -> None:
    log = LimitLog(Allowed(2))
    log.store(log.request("a", more=2))
    log.store(log.request("b"))
    decided = log.turn()
    assert decided is not None
    assert [("a", 2), ("b", 0)] == [(one.holder, one.more) for one in decided.granted]


def test_a_request_that_is_stored_again_says_so_too() -> None:
    log = LimitLog(Allowed(1))
    log.store(log.request("a"))
    log.decides()
    log.store(log.request("b", more=1))
    again = waiting_before(log.owner, log.records[-1][0] + 1)
    assert [("b", 1)] == [(one.holder, one.more) for one in again]
    log.store(written_again(log.owner, log.allowed, log.now, again))
    log.releases("a")
    decided = log.turn()
    assert decided is not None
    assert [("b", 1)] == [(one.holder, one.more) for one in decided.granted]
