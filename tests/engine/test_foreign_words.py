"""What workers of any make send: nulls, timestamps of every kind, texts and payloads of any size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import orjson
import pytest
from msgspec import Raw
from msgspec.structs import replace

from penstock.config.limits import ERROR_BYTES_MAX, PAYLOAD_BYTES_MAX
from penstock.engine.run.advance import advance
from penstock.engine.run.commands import DeadLetterTask
from penstock.engine.run.event_payloads import Cancellation, Failure
from penstock.engine.run.events import Event, Malformed, StepCompleted, StepFailed, WorkflowCancelled, decode
from penstock.engine.run.state import from_snapshot, to_snapshot
from penstock.engine.times import rfc3339, utc
from tests.engine.build import EPOCH, RUN_ID, Play, appended, loop, only, started, step, workflow
from tests.engine.test_events import BY_TYPE, body

ONE = workflow(step("a", retry={"max_attempts": 1}), step("b", "a"))
LOOP = workflow(loop("a", config={"max_iterations": 3}))
KINDS: dict[str, Any] = {str(kind.__struct_config__.tag): kind for kind in get_args(Event)}
TOO_MUCH = "x" * PAYLOAD_BYTES_MAX  # its quotes are too much
LARGEST = "x" * (PAYLOAD_BYTES_MAX - 2)


def optional_fields(kind: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The ways to all fields that may be absent, in the event and in the objects in it; not to those that hold any
    JSON."""
    for field in msgspec.structs.fields(kind):
        parts = get_args(field.type) or (field.type,)
        if not field.required and Raw not in parts:
            yield (*path, field.encode_name)
        for part in parts:
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                yield from optional_fields(part, (*path, field.encode_name))


OPTIONAL = [(kind, path) for kind in sorted(KINDS) for path in optional_fields(KINDS[kind])]


# What an object within a payload must have.
WITHIN = {"trigger": {"name": "t", "kind": "k"}, "parent": {"run_id": "0198c0de" * 4, "step_id": "a"}}


@pytest.mark.parametrize(("kind", "path"), OPTIONAL, ids=[f"{kind} {'.'.join(path)}" for kind, path in OPTIONAL])
def test_null_in_an_optional_field_means_absent(kind: str, path: tuple[str, ...]) -> None:
    null, absent = (orjson.loads(body(BY_TYPE[kind])) for _ in range(2))
    *before, last = path
    for document in (null, absent):
        for name in before:
            if not isinstance(document.get(name), dict):
                document[name] = dict(WITHIN.get(name, {"timer": "t"}))
            document = document[name]
        document.pop(last, None)
        if any(document is part for part in _objects(null)):
            document[last] = None
    assert decode(body(null)) == decode(body(absent))


def _objects(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from _objects(part)


@pytest.mark.parametrize("kind", ["step.completed", "step.continue"])
def test_null_is_an_output_like_any_other(kind: str) -> None:
    event = decode(body({**BY_TYPE[kind], "timestamp": None, "payload": None}))
    assert bytes(event.payload) == b"null"  # type: ignore[union-attr,arg-type]


@pytest.mark.parametrize(
    "change", [{"run_id": None}, {"step_id": None}, {"payload": {"error": 5, "failure_type": None}}, {"payload": []}]
)
def test_what_is_needed_or_of_another_type_is_malformed_beside_nulls_too(change: dict[str, object]) -> None:
    with pytest.raises(Malformed):
        decode(body({**BY_TYPE["step.failed"], "timestamp": None, **change}))


def test_a_failure_with_nulls_fails_its_step() -> None:
    play = started(ONE)
    nulls = {"error": "boom", "failure_type": None, "retry_after_ms": None, "traceback": None}
    play.tell(
        decode(body({"type": "step.failed", "run_id": RUN_ID, "step_id": "a", "timestamp": "", "payload": nulls}))
    )
    assert ("queued", 2, "boom") == (play.step("a").status, play.step("a").attempts, play.step("a").error)


BROKERS = rfc3339(EPOCH)


@pytest.mark.parametrize(
    ("told", "instant"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05.123456789Z"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05.000000Z"),
        ("2026-01-01T23:30:00.25-01:45", "2026-01-02T01:15:00.250000Z"),
        ("2026-01-02t03:04:05.5z", "2026-01-02T03:04:05.500000Z"),
        ("2026-01-02T03:04:05-00:00", "2026-01-02T03:04:05.000000Z"),
        *[
            (wrong, BROKERS)
            for wrong in (
                "",
                "yesterday",
                "2026-01-02",
                "2026-01-02T03:04:05",
                "2026-01-02 03:04:05Z",
                "20260102T030405Z",
                "2026-W01-1T03:04:05Z",
                "2026-02-30T03:04:05Z",
                "2026-01-02T25:04:05Z",
                "2026-01-02T03:04:05+99:00",
                "0001-01-01T00:00:00+01:00",
                "2026-01-02T03:04:05,5Z",
                "٢٠٢٦-01-02T03:04:05Z",
                "2026-01-02T03:04:05Z\n",
                "1767323045",
            )
        ],
    ],
)
def test_a_timestamp_is_an_instant_in_utc_or_the_brokers_time(told: str, instant: str) -> None:
    assert utc(told, EPOCH) == instant
    play = started(ONE)
    play.begin("a")
    play.tell(StepCompleted(run_id=RUN_ID, timestamp=told, step_id="a", attempt_number=1))
    assert play.step("a").finished_at == instant


def test_what_follows_from_an_event_carries_its_judged_time_and_a_replay_says_the_same() -> None:
    play = Play(workflow(step("a")))
    play.start()
    play.begin("a")
    play.tell(replace(play.log[-1].event, timestamp="yesterday"))
    commands = play.tell(
        StepFailed(run_id=RUN_ID, step_id="a", timestamp="tomorrow", payload=Failure(error="x")), after=5
    )
    assert ["workflow.failed"] == appended(commands)
    assert all(event.timestamp == rfc3339(EPOCH + 5) for event in play._due)
    again = None
    for record in play.log:
        again, _ = advance(play.workflow, again, record)
    assert again == play.run


def test_errors_are_cut_at_their_limit_whoever_sends_them() -> None:
    play = started(ONE)
    play.fail("a", error="é" * ERROR_BYTES_MAX)
    assert "é" * (ERROR_BYTES_MAX // 2) == play.step("a").error
    play.fire("retry.a", "a", 2)
    commands = play.fail("a", 2, error="ü" * ERROR_BYTES_MAX)
    play.settle()
    for text in (play.step("a").error, play.run.error, only(DeadLetterTask, commands)[0].error):
        assert text is not None
        assert ERROR_BYTES_MAX - 2 < len(text.encode()) <= ERROR_BYTES_MAX


def test_the_reason_of_a_cancellation_is_cut_too() -> None:
    play = started(ONE)
    play.tell(WorkflowCancelled(run_id=RUN_ID, payload=Cancellation(reason="x" * (ERROR_BYTES_MAX + 1))))
    assert "x" * ERROR_BYTES_MAX == play.run.error


def test_a_traceback_is_kept_with_its_error_as_far_as_its_last_frames() -> None:
    play = started(workflow(step("a", retry={"max_attempts": 2})))
    lines = "".join(f"  frame {number}\n" for number in range(2000))
    play.tell(_failure(1, Failure(error="boom", traceback=lines)))
    kept = play.step("a").traceback
    assert kept is not None
    assert len(kept.encode()) <= ERROR_BYTES_MAX
    assert lines.endswith(kept)
    assert kept.startswith("  frame ")
    assert from_snapshot(to_snapshot(play.run)) == play.run
    play.tell(_failure(2, Failure(error="other")))
    assert play.step("a").traceback is None, "it belongs to another error"
    play.tell(_failure(3, Failure(error="last", traceback="x" * 9000)))
    assert ("failed", "x" * ERROR_BYTES_MAX) == (play.step("a").status, play.step("a").traceback)


def test_a_step_that_completes_after_all_keeps_no_traceback() -> None:
    play = started(ONE)
    play.tell(_failure(1, Failure(error="boom", traceback="frames")))
    play.complete("a", attempt=2)
    assert (None, None) == (play.step("a").error, play.step("a").traceback)


def _failure(attempt: int, failure: Failure) -> StepFailed:
    return StepFailed(run_id=RUN_ID, step_id="a", attempt_number=attempt, payload=failure)


def test_an_output_over_its_limit_fails_the_step_for_good_and_names_the_limit() -> None:
    play = started(ONE)
    commands = play.complete("a", TOO_MUCH)
    play.settle()
    text = f"the output has {PAYLOAD_BYTES_MAX + 2} bytes, {PAYLOAD_BYTES_MAX} is the most"
    assert ("failed", text, "failed") == (play.step("a").status, play.step("a").error, play.run.status)
    assert [text] == [dead_letter.error for dead_letter in only(DeadLetterTask, commands)]
    assert play.step("a").output_at is None
    assert ("cancelled", f'step "a" failed: {text}') == (play.step("b").status, play.run.error)


def test_the_largest_output_is_taken() -> None:
    play = started(ONE)
    play.complete("a", LARGEST)
    assert ("completed", "queued") == (play.step("a").status, play.step("b").status)


def test_what_a_loop_continues_with_has_the_same_limit() -> None:
    play = started(LOOP)
    play.go_on("a", LARGEST)
    assert ("queued", 1) == (play.step("a").status, play.step("a").iteration)
    play.go_on("a", TOO_MUCH, iteration=1)
    text = f"the payload of step.continue has {PAYLOAD_BYTES_MAX + 2} bytes, {PAYLOAD_BYTES_MAX} is the most"
    assert ("failed", text, 1) == (play.step("a").status, play.step("a").error, play.step("a").iteration)
