"""Strategies for users' own properties: what they draw is valid, and takes runs to every end."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from penstock.engine.validation import parse
from penstock.testing import TestService
from penstock.testing.strategies import EventKind, OutsideEvent, definitions, events

ENDED = ("completed", "failed", "cancelled")
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@QUICK
@given(definitions(["t", "u"], name="mine", steps_max=5))
def test_definitions_are_valid_and_need_only_the_tasks_that_are_given(definition: dict[str, Any]) -> None:
    parsed = parse(definition)
    assert "mine" == parsed.name
    assert {step["task"] for step in definition["steps"] if "task" in step} <= {"t", "u"}
    assert 1 <= len(definition["steps"]) <= 5


def story(definition: dict[str, Any], happens: list[OutsideEvent]) -> str:
    """The status of a run after all that, and a year."""
    with TestService(definition, tasks={"t": lambda value: value}) as service:
        run = service.start("w", 1)
        for event in happens:
            event.happen(service, run)
        if run.paused and not run.ended:
            run.resume()
        service.advance("365d")
        return run.status


@QUICK
@given(st.data())
def test_every_run_comes_to_an_end_whatever_happens(data: st.DataObject) -> None:
    definition = data.draw(definitions())
    assert story(definition, data.draw(events(definition))) in ENDED


def test_runs_come_to_every_end() -> None:
    stories = definitions().flatmap(lambda one: st.tuples(st.just(one), events(one)))
    for status in ENDED:
        found = find(
            stories,
            lambda one, wanted=status: story(*one) == wanted,
            settings=settings(database=None, max_examples=2000, derandomize=True),
        )
        assert status == story(*found)


def test_everything_happens_to_a_run_that_allows_it() -> None:
    steps = [
        {"id": "a", "task": "t"},
        {"id": "b", "type": "approval", "config": {"timeout": "1h"}},
        {"id": "c", "type": "wait_for_event", "config": {"event": "e", "timeout": "1h"}},
    ]
    strategy = events({"steps": steps}, bodies=st.just("yes"))
    for kind in EventKind:
        drawn = find(strategy, lambda found, wanted=kind: any(one.kind is wanted for one in found))
        assert kind in {one.kind for one in drawn}
    sent = find(strategy, lambda found: any(one.kind is EventKind.SEND_EVENT for one in found))
    assert ("e", "yes") == next((one.name, one.body) for one in sent if one.kind is EventKind.SEND_EVENT)


def test_who_does_not_use_them_does_not_load_hypothesis() -> None:
    code = "import penstock.testing, sys; assert not any(name.startswith('hypothesis') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
