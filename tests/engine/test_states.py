"""The tables of moves, their diagram, and the snapshot's form."""

from __future__ import annotations

import msgspec
import orjson
import pytest

from penstock.engine.run.state import (
    RUN_ENDED,
    RUN_MOVES,
    STEP_DONE,
    STEP_ENDED,
    STEP_MOVES,
    STEP_OUT,
    RunStatus,
    StepStatus,
    from_snapshot,
    to_snapshot,
)
from scripts.diagrams import PAGE, page
from tests.engine.build import EPOCH, started, step, workflow


def test_the_page_of_diagrams_is_what_the_tables_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python scripts/diagrams.py"


def test_every_status_has_its_moves() -> None:
    assert set(RUN_MOVES) == set(RunStatus)
    assert set(STEP_MOVES) == set(StepStatus)


def test_completed_and_cancelled_runs_are_final_and_failed_ones_go_on_by_replay_only() -> None:
    assert {status: RUN_MOVES[status] for status in RUN_ENDED} == {
        RunStatus.COMPLETED: frozenset(),
        RunStatus.CANCELLED: frozenset(),
        RunStatus.FAILED: {RunStatus.PENDING, RunStatus.RUNNING},
    }


def test_a_step_that_is_done_stays_so() -> None:
    assert {STEP_MOVES[status] for status in STEP_DONE} == {frozenset()}


def test_a_step_is_waiting_out_or_ended() -> None:
    assert {StepStatus.PENDING} | STEP_OUT | STEP_ENDED == set(StepStatus)
    assert set() == STEP_OUT & STEP_ENDED


def test_a_snapshot_has_the_fields_of_the_protocol_and_leaves_absent_ones_out() -> None:
    play = started(workflow(step("a", timeout="1m"), step("b", "a"), timeout="1h"), {"n": 1})
    play.begin("a", worker="w-7")
    at = "1970-01-12T13:46:40.000000Z"
    assert orjson.loads(to_snapshot(play.run)) == {
        "run_id": play.run_id,
        "workflow_id": "w",
        "version": "1",
        "digest": play.workflow.digest,
        "status": "running",
        "created_at": at,
        "started_at": at,
        "seq": 2,
        "due": EPOCH + 3600,
        "input": {"n": 1},
        "steps": {
            "a": {"status": "running", "attempts": 1, "started_at": at, "worker_id": "w-7", "due": EPOCH + 60},
            "b": {},
        },
    }


def test_a_snapshot_is_read_back_as_the_same_run() -> None:
    play = started(workflow(step("a", retry={"max_attempts": 1}), step("b", "a"), step("c")), {"ü": [1.5, None]})
    play.fail("a")
    play.complete("a", {"x": "ü"}, 2)
    play.fail("c")
    play.settle()
    assert from_snapshot(to_snapshot(play.run)) == play.run


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"run_id": 5}'])
def test_what_is_no_snapshot_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        from_snapshot(body)
