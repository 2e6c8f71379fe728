"""Limits in the test kit: the engine's own decisions about who has a slot."""

from __future__ import annotations

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
