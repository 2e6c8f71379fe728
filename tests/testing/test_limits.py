"""Limits in the test kit: the engine's own decisions about who has a slot."""

from __future__ import annotations

import pytest

from penstock.engine.errors import Invalid, NotFound
from penstock.testing import TestService, assert_completed, assert_happened

STEP = {"id": "s", "task": "t"}


def test_runs_wait_for_a_slot() -> None:
    flow = {"name": "f", "concurrency": [{"limit": 1}], "steps": [STEP]}
    with TestService(tasks={"t": lambda value: value}) as service:
        service.delay("t", "10s")
        first, second = service.start(flow, 1), service.start(flow, 2)
        assert (first.status, second.status) == ("running", "pending")
        service.advance("10s")
        assert (first.status, second.status) == ("completed", "running")
        service.advance("10s")
        assert_completed(second, 2)
        assert_happened(second, "limit.granted", "step.started s")


def test_a_rate_lets_executions_begin_in_time() -> None:
    flow = {"name": "f", "steps": [{**STEP, "rate_limit": [{"limit": 2, "per": "1m", "key": "input.who"}]}]}
    with TestService(tasks={"t": lambda value: value}) as service:
        runs = [service.start(flow, {"who": "a"}) for _ in range(3)]
        other = service.start(flow, {"who": "b"})
        assert [run.ended for run in [*runs, other]] == [True, True, False, True]
        service.advance("1m1s")
        assert runs[2].ended


def test_a_newer_run_takes_the_place_of_one_that_goes_on() -> None:
    flow = {"name": "f", "concurrency": [{"limit": 1, "on_limit": "replace"}], "steps": [STEP]}
    with TestService(tasks={"t": lambda value: value}) as service:
        service.delay("t", "1h")
        first, second = service.start(flow, 1), service.start(flow, 2)
        service.advance("2h")
        assert (first.status, first.error) == ("cancelled", "replaced")
        assert_completed(second, 2)


def test_a_limit_is_set_and_counts_at_once_until_it_is_reset() -> None:
    flow = {"name": "f", "concurrency": [{"limit": 1}], "steps": [STEP]}
    with TestService(flow, tasks={"t": lambda value: value}) as service:
        service.delay("t", "10s")
        runs = [service.start("f", n) for n in range(4)]
        service.set_limit("f", 3)
        assert ["running"] * 3 + ["pending"] == [run.status for run in runs]
        service.set_limit("f", 0)
        service.advance("1m")
        assert ["completed"] * 3 + ["pending"] == [run.status for run in runs]
        service.reset_limit("f")
        assert "running" == runs[3].status
        with pytest.raises(NotFound, match='nothing was set for the limit "f"'):
            service.reset_limit("f")


def test_a_limit_is_set_for_one_key() -> None:
    flow = {"name": "f", "concurrency": [{"limit": 1, "key": "input"}], "steps": [STEP]}
    with TestService(flow, tasks={"t": lambda value: value}) as service:
        service.delay("t", "10s")
        service.set_limit("f", 2, key="big")
        runs = [service.start("f", key) for key in ("big", "big", "small", "small")]
        assert ["running", "running", "running", "pending"] == [run.status for run in runs]


def test_a_rate_is_set() -> None:
    flow = {"name": "f", "steps": [{**STEP, "rate_limit": [{"limit": 1, "per": "1m"}]}]}
    with TestService(flow, tasks={"t": lambda value: value}) as service:
        service.set_limit("f.s", 3, per="1s")
        runs = [service.start("f", n) for n in range(4)]
        assert [True, True, True, False] == [run.ended for run in runs]
        service.advance("2s")
        assert runs[3].ended


def test_what_is_no_limit_cannot_be_set() -> None:
    both = [{"limit": 1, "scope": "shared"}]
    flow = {"name": "f", "concurrency": both, "steps": [{**STEP, "concurrency": both}]}
    with TestService(flow, tasks={"t": lambda value: value}) as service:
        with pytest.raises(NotFound, match='no limit of this kind has the scope "g"'):
            service.set_limit("g", 1)
        with pytest.raises(NotFound, match='no limit of this kind has the scope "shared"'):
            service.set_limit("shared", 1, per="1s")
        with pytest.raises(Invalid, match='"shared" has limits of several kinds: say kind, one of executions runs'):
            service.set_limit("shared", 1)
        with pytest.raises(Invalid, match="limit is -1"):
            service.set_limit("shared", -1, kind="runs")
        service.set_limit("shared", 2, kind="runs")
