"""The rule of the state machine for completions by hand: it looks at what the completion did, and at nothing else."""

from __future__ import annotations

import pytest
from msgspec import Raw

from penstock.engine.run.event_payloads import Started
from penstock.engine.run.events import WorkflowStarted
from penstock.engine.run.state import RunStatus, StepStatus
from tests.properties import by_hand
from tests.properties.by_hand import Operator
from tests.properties.definitions import compiled, task
from tests.properties.world import RUN_ID

FIRST, SECOND = 0, 1  # steps by their places: the second depends on the first


def operator() -> Operator:
    """Of a run of two steps, the first of which is at a worker."""
    one = Operator()
    one.workflow = compiled({"name": "w", "steps": [task("a"), task("b", "a")]})
    payload = Started(workflow="w", version="1", digest="digest", input=Raw(b"{}"))
    one.tell(WorkflowStarted(run_id=RUN_ID, timestamp=one.stamp(), payload=payload))
    return one


@pytest.mark.parametrize(("pick", "status"), [(FIRST, StepStatus.COMPLETED), (SECOND, StepStatus.PENDING)])
def test_a_failure_that_is_on_its_way_lands_after_the_completion(pick: int, status: StepStatus) -> None:
    one = operator()
    one.refuse()
    one.complete_by_hand(pick)
    completed, failed = one.states[-2:]
    assert completed is not None
    assert failed is not None
    assert (RunStatus.RUNNING, RunStatus.FAILED) == (completed.status, failed.status)
    assert completed.steps["ab"[pick]].status is status


def test_a_refused_completion_that_changes_the_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    one = operator()
    monkeypatch.setattr(by_hand, "refusal", lambda *_: "not now")
    with pytest.raises(AssertionError):
        one.complete_by_hand(FIRST)
