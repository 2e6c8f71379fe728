"""An answer that is folded in one pass leads to what the start and the answer behind it lead to; and an end that its
owner has stored to what it knows already."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from msgspec.structs import replace

from penstock.actors.runs.end_state import STATE_BYTES_MAX, _carried, is_completion
from penstock.engine.run.advance import _begun_and_answered, advance
from penstock.engine.run.commands import Command
from penstock.engine.run.event_payloads import PauseScope, Started
from penstock.engine.run.events import (
    Record,
    StepCompleted,
    StepFailed,
    WorkflowCompleted,
    WorkflowPaused,
    WorkflowStarted,
    WorkflowUnpaused,
    decode,
    encode,
)
from penstock.engine.run.execution.deliveries import short_step
from penstock.engine.run.state import Run, StepStatus, to_snapshot
from penstock.engine.run.workflow import Workflow
from penstock.engine.times import rfc3339
from tests.properties.definitions import compiled, definitions, task

RUN_ID = "0198c0de" * 4
EPOCH = 1_000_000.0
FIRST = WorkflowStarted(run_id=RUN_ID, timestamp=rfc3339(EPOCH), payload=Started("w", "1", "d", Raw(b'{"x":1}')))
OUTPUTS = [UNSET, Raw(b"null"), Raw(b'{"x":1}'), Raw(b'"%b"' % (b"x" * 5000))]
BEGAN = [None, *[rfc3339(EPOCH + before) for before in (-5.0, -0.02, 0.0, 0.5)], "1970-01-12T13:46:39.98Z", "soon", ""]
EVENTS = st.sampled_from(["completed"] * 8 + ["failed", "paused", "unpaused"])


def told(draw: st.DrawFn, run: Run, seq: int) -> Any:
    """An event, mostly the answer of a step that is queued."""
    at = EPOCH + seq * draw(st.sampled_from([0.01, 1.0, 40.0]))
    fields: dict[str, Any] = {"run_id": RUN_ID, "timestamp": rfc3339(at)}
    match kind := draw(EVENTS):
        case "paused":
            return WorkflowPaused(**fields, payload=PauseScope())
        case "unpaused":
            return WorkflowUnpaused(**fields, payload=PauseScope())
    queued = [step_id for step_id, step in run.steps.items() if step.status is StepStatus.QUEUED]
    began = draw(st.sampled_from([*[rfc3339(at - 0.01)] * 20, rfc3339(at - 30.0), *BEGAN]))
    fields |= {
        "step_id": draw(st.sampled_from([*queued * 5, *run.steps, "none"])),
        "worker_id": draw(st.sampled_from(["w", "w", None])),
        "attempt_number": draw(st.sampled_from([1] * 8 + [2, None])),
        "iteration": draw(st.sampled_from([None] * 6 + [0, 1])),
        "delivery": draw(st.sampled_from([1, 1, 2])),
        "started_at": began,
    }
    if kind == "failed":
        return StepFailed(**fields)
    return StepCompleted(**fields, payload=draw(st.sampled_from(OUTPUTS)))


@given(st.data())
def test_one_pass_is_as_good_as_two(data: st.DataObject) -> None:
    draw: Any = data.draw
    workflow = compiled(draw(definitions()))
    run, _ = advance(workflow, None, Record(1, EPOCH, FIRST))
    for seq in range(2, draw(st.integers(3, 12))):
        assert run is not None
        event = told(draw, run, seq)
        record = Record(seq, EPOCH + seq, event)
        if isinstance(event, StepCompleted) and event.started_at is not None:
            check(workflow, run, record, event)
        run, commands = advance(workflow, run, record)
        if run is not None and commands and is_completion(commands[-1]):
            check_end(workflow, run, commands[-1].event)


class Lasting:
    keeps_all = True


def check_end(workflow: Workflow, run: Run, event: WorkflowCompleted) -> None:
    """What its owner makes of the end that it stores is what the delivered one leads to, whatever its sequence."""
    history: Any = Lasting()
    carried = _carried(workflow, run, event, history)
    folded, following = advance(workflow, run, Record(run.seq + 7, EPOCH + 1e6, decode(encode(event))))
    if carried is None:
        assert following or len(to_snapshot(run)) > STATE_BYTES_MAX
    else:
        assert not following
        assert replace(carried.after, seq=run.seq + 7) == folded


def check(workflow: Workflow, run: Run, record: Record, event: StepCompleted) -> None:
    short = short_step(workflow, run, record, event)
    if short is not None:
        after, commands = _begun_and_answered(workflow, run, record)
        assert (after, list[Command](commands)) == (short[0], list[Command](short[1]))


def test_the_usual_step_is_folded_in_one_pass() -> None:
    workflow = compiled({"name": "w", "steps": [task("a", timeout="5s"), task("b", "a")]})
    run, _ = advance(workflow, None, Record(1, EPOCH, FIRST))
    assert run is not None
    for seq, step_id in enumerate(("a", "b"), 2):
        ended = StepCompleted(
            run_id=RUN_ID,
            step_id=step_id,
            timestamp=rfc3339(EPOCH + 1),
            started_at=rfc3339(EPOCH + 0.5),
            attempt_number=1,
            payload=Raw(b"1"),
        )
        found = short_step(workflow, run, Record(seq, EPOCH + 1, ended), ended)
        assert found is not None
        check(workflow, run, Record(seq, EPOCH + 1, ended), ended)
        run = found[0]
