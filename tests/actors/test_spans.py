"""Spans out of a fold: ids, parents, times and what they must not hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.actors.runs.shared.spans import is_sampled, spans
from penstock.engine.definition.definitions import digest, to_json
from penstock.engine.run.advance import advance
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.events import Event, Record, StepCompleted, StepFailed, StepStarted, WorkflowCancelled, decode
from penstock.engine.run.state import Run
from penstock.engine.run.workflow import Workflow
from penstock.engine.validation import parse
from penstock.telemetry.tracing import Span
from tests.support.world import chain

RUN = "0192aabbccdd7eeff00112233445566a"
CALLER = "00-" + "c" * 32 + "-" + "d" * 16 + "-01"
START = 1_700_000_000.0


def workflow(**more: Any) -> Workflow:
    definition = parse(chain("w", 2, **more))
    return compile_workflow(definition, digest(to_json(definition)))


def started(trace_parent: str | None = None) -> Event:
    extra = b"" if trace_parent is None else b',"trace_parent":"%b"' % trace_parent.encode()
    head = b'{"type":"workflow.started","run_id":"%b","timestamp":"2023-11-14T22:13:20Z"%b' % (RUN.encode(), extra)
    return decode(head + b',"payload":{"workflow":"w","version":"1","digest":"d"}}')


def told(of: Workflow, *events: Event) -> list[Span]:
    """The spans of these events, one second apart."""
    found: list[Span] = []
    run: Run | None = None
    for number, event in enumerate(events):
        record = Record(number + 1, START + number, event)
        before = run
        run, _ = advance(of, run, record)
        if before is not None and run is not None and run is not before:
            found += spans(of, before, run, record)
    return found


def step(kind: type[Event], at: int, step_id: str = "s0", **more: Any) -> Event:
    return kind(run_id=RUN, step_id=step_id, timestamp=f"2023-11-14T22:13:{20 + at}Z", worker_id="w1", **more)


def test_a_step_lasts_from_its_start_to_its_end() -> None:
    (span,) = told(workflow(), started(), step(StepStarted, 1), step(StepCompleted, 3))
    assert (RUN, "step s0", "ok") == (span.trace_id, span.name, span.status)
    assert (1_700_000_001 * 10**9, 1_700_000_003 * 10**9) == (span.start_time_unix_nano, span.end_time_unix_nano)
    assert ("w.echo", 1, "w1") == tuple(
        span.attributes[f"penstock.{name}"] for name in ("task", "attempt", "worker_id")
    )


def test_each_attempt_has_a_span_of_its_own() -> None:
    retried = workflow(retry={"max_attempts": 1})
    failed = step(StepFailed, 2, payload=Failure(error="secret payload"))
    first, second = told(retried, started(), step(StepStarted, 1), failed, step(StepStarted, 3), step(StepCompleted, 4))
    assert ("error", "ok") == (first.status, second.status)
    assert first.span_id != second.span_id
    assert (1, 2) == (first.attributes["penstock.attempt"], second.attributes["penstock.attempt"])
    assert "secret" not in str(first)


def test_the_end_of_a_run_ends_what_is_under_way() -> None:
    step_span, run_span = told(workflow(), started(), step(StepStarted, 1), WorkflowCancelled(run_id=RUN))
    assert ("step s0", "error") == (step_span.name, step_span.status)
    assert ("run w", "error", "cancelled") == (run_span.name, run_span.status, run_span.attributes["penstock.status"])
    assert run_span.span_id == step_span.parent_span_id
    assert (START + 2) * 10**9 == run_span.end_time_unix_nano


def test_a_parent_of_the_run_takes_all_its_spans_into_its_trace() -> None:
    events = started(CALLER), step(StepStarted, 1), step(StepCompleted, 2), WorkflowCancelled(run_id=RUN)
    step_span, run_span = told(workflow(), *events)
    assert {"c" * 32} == {step_span.trace_id, run_span.trace_id}
    assert ("d" * 16, run_span.span_id) == (run_span.parent_span_id, step_span.parent_span_id)


def test_a_step_may_name_a_parent_of_its_own() -> None:
    (span,) = told(workflow(), started(), step(StepStarted, 1), step(StepCompleted, 2, trace_parent=CALLER))
    assert ("c" * 32, "d" * 16) == (span.trace_id, span.parent_span_id)


@pytest.mark.parametrize(
    "header",
    ["", "x", "00-" + "0" * 32 + "-" + "d" * 16 + "-01", "00-" + "c" * 32 + "-" + "0" * 16 + "-01", CALLER.upper()],
)
def test_a_parent_that_is_none_is_ignored(header: str) -> None:
    (span,) = told(workflow(), started(header), step(StepStarted, 1), step(StepCompleted, 2))
    assert RUN == span.trace_id


@given(began=st.text(max_size=40), ended=st.text(max_size=40), header=st.text(max_size=70))
def test_no_text_that_a_worker_may_send_breaks_a_span(began: str, ended: str, header: str) -> None:
    events = (
        StepStarted(run_id=RUN, step_id="s0", timestamp=began),
        StepCompleted(run_id=RUN, step_id="s0", timestamp=ended, trace_parent=header),
    )
    (span,) = told(workflow(), started(), *events)
    assert span.start_time_unix_nano <= span.end_time_unix_nano


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2023-11-14", "2023-11-14T22:13:20"]
)
def test_moments_at_the_edge_break_nothing(moment: str) -> None:
    (span,) = told(
        workflow(), started(), StepStarted(run_id=RUN, step_id="s0", timestamp=moment), step(StepCompleted, 2)
    )
    assert span.start_time_unix_nano <= span.end_time_unix_nano


def test_the_share_of_sampled_runs_is_about_the_ratio_and_the_same_everywhere() -> None:
    run_ids = [f"{number:032x}" for number in range(20_000)]
    sampled = {run_id for run_id in run_ids if is_sampled(run_id, 0.1)}
    assert 1_800 < len(sampled) < 2_200
    assert sampled < {run_id for run_id in run_ids if is_sampled(run_id, 0.2)}
    assert all(is_sampled(run_id, 1.0) for run_id in run_ids)
    assert not any(is_sampled(run_id, 0.0) for run_id in run_ids)
