"""The codec of the history: every type of the protocol's table, and everything that is none of them."""

from __future__ import annotations

from typing import get_args

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.run.event_payloads import Failure
from penstock.engine.run.events import Event, Malformed, StepCompleted, StepFailed, decode, encode, event_type

REF = {"workflow": "w", "version": "1", "digest": "d"}
STEP = {"step_id": "a", "worker_id": "w1", "attempt_number": 2, "iteration": 1}

# Type by type as a stranger writes it, with every field of the protocol.
WIRE: list[dict[str, object]] = [
    {"type": "workflow.scheduled", "payload": {**REF, "input": {"n": 1}, "run_at": "2030-01-01T00:00:00Z"}},
    {
        "type": "workflow.started",
        "payload": {
            **REF,
            "input": [1],
            "trigger": {"name": "t", "kind": "cron", "at": "x"},
            "rerun_of": "q",
            "parent": "p",
        },
    },
    {"type": "step.started", **STEP, "delivery": 2},
    {"type": "step.completed", **STEP, "payload": {"deep": [None, 1.5, "ü", True]}},
    {"type": "step.failed", **STEP, "payload": {"error": "boom", "failure_type": "retry_after", "retry_after_ms": 5}},
    {"type": "step.continue", **STEP, "payload": {"page": 2}},
    {"type": "step.paused", **STEP, "delivery": 3, "payload": {"duration_ms": 5, "name": "waits"}},
    {"type": "step.skipped", "step_id": "a"},
    {"type": "step.overridden", "step_id": "a", "payload": {"output": {"n": 1}, "by": "ada"}, "v": 2},
    {"type": "step.taken_over", "step_id": "a", "payload": {"status": "completed", "output": [1]}, "v": 2},
    {"type": "planner.expanded", **STEP, "payload": {"steps": [{"id": "x", "task": "t", "type": "normal"}]}},
    {
        "type": "approval.requested",
        "step_id": "a",
        "payload": {"token": "t", "expires_at": "x", "subject": "s", "description": "d", "metadata": {"k": "v"}},
    },
    {"type": "approval.granted", "step_id": "a", "payload": {"comment": "ok", "approved_by": "me"}},
    {"type": "approval.rejected", "step_id": "a", "payload": {"comment": "no", "approved_by": "me"}},
    {"type": "approval.expired", "step_id": "a", "payload": {"timer": "approval.a", "step_id": "a", "attempt": 1}},
    {"type": "child.ended", "step_id": "m.7", "item": 7, "payload": {"run_id": "c", "status": "failed", "error": "no"}},
    {
        "type": "event.received",
        "step_id": "a",
        "payload": {"event": "paid", "seq": 9, "body": {"id": 7}},
        "v": 2,
    },
    {"type": "timer.fired", "payload": {"timer": "timeout.a", "step_id": "a", "attempt": 1}},
    {"type": "signal.received", "payload": {"name": "go", "size": 12}},
    {
        "type": "limit.granted",
        "payload": {"holder": "r.a.0.1", "limit_id": "f" * 32, "kind": "executions", "scope": "s", "step_id": "a"},
    },
    {"type": "limit.refused", "payload": {"holder": "r.0", "limit_id": "f" * 32, "reason": "limit"}},
    {"type": "workflow.cancelled", "payload": {"reason": "enough"}},
    {"type": "workflow.compensating", "payload": {"error": "no lorry", "steps": ["reserve", "charge"]}},
    {"type": "workflow.paused", "payload": {"children": True}, "v": 2},
    {"type": "workflow.unpaused", "payload": {"children": True}, "v": 2},
    {"type": "workflow.resumed", "payload": {"steps": ["a", "b"], "letters": 7}},
    {"type": "workflow.completed", "payload": {"output": {"sum": 3}}},
    {"type": "workflow.failed", "payload": {"error": "boom", "step_id": "a"}},
    {"type": "workflow.removed", "v": 2},
]
BY_TYPE = {
    str(wire["type"]): {"run_id": "r", "timestamp": "2026-01-02T03:04:05Z", "trace_parent": "00-1-2-01", **wire}
    for wire in WIRE
}

# Types whose payload may be absent, with the fields that must be there.
BARE = {
    "step.started": {"step_id": "a"},
    "step.completed": {"step_id": "a"},
    "step.failed": {"step_id": "a"},
    "step.continue": {"step_id": "a"},
    "step.paused": {"step_id": "a"},
    "step.skipped": {"step_id": "a"},
    "step.overridden": {"step_id": "a"},
    "planner.expanded": {"step_id": "a"},
    "approval.granted": {"step_id": "a"},
    "approval.rejected": {"step_id": "a"},
    "approval.expired": {"step_id": "a"},
    "workflow.cancelled": {},
    "workflow.compensating": {},
    "workflow.paused": {},
    "workflow.unpaused": {},
    "workflow.resumed": {},
    "workflow.completed": {},
    "workflow.failed": {},
    "workflow.removed": {},
}


def body(document: object) -> bytes:
    return orjson.dumps(document)


def failed(payload: object) -> Event:
    return decode(body({"type": "step.failed", "run_id": "r", "step_id": "a", "payload": payload}))


def test_the_table_of_this_test_is_complete() -> None:
    assert {kind.__struct_config__.tag for kind in get_args(Event)} == set(BY_TYPE)


@pytest.mark.parametrize("wire", BY_TYPE.values(), ids=BY_TYPE)
def test_every_type_round_trips_with_all_its_fields(wire: dict[str, object]) -> None:
    event = decode(body(wire))
    assert event_type(event) == wire["type"]
    assert orjson.loads(encode(event)) == wire
    assert decode(encode(event)) == event


@pytest.mark.parametrize(("kind", "fields"), BARE.items(), ids=BARE)
def test_what_is_optional_may_be_absent_and_is_then_left_out(kind: str, fields: dict[str, str]) -> None:
    wire = {"type": kind, "run_id": "r", **fields}
    assert orjson.loads(encode(decode(body(wire)))) == wire


@pytest.mark.parametrize("wire", BY_TYPE.values(), ids=BY_TYPE)
def test_unknown_fields_are_ignored(wire: dict[str, object]) -> None:
    newer = {"colour": {"deep": [1]}, **wire, "later": None}
    if isinstance(payload := wire.get("payload"), dict):
        newer["payload"] = (
            payload | {"later": 1} if wire["type"] not in ("step.completed", "step.continue") else payload
        )
    assert decode(body(newer)) == decode(body(wire))


def test_fields_may_stand_in_any_order() -> None:
    wire = BY_TYPE["step.failed"]
    assert decode(body(dict(reversed(wire.items())))) == decode(body(wire))


def test_a_failure_is_retriable_and_without_text_unless_it_says_otherwise() -> None:
    event = failed({})
    assert isinstance(event, StepFailed)
    assert event.payload == Failure(error="", failure_type="retriable", retry_after_ms=0)
    assert (event.attempt_number, event.iteration, event.timestamp) == (None, None, "")


def test_null_is_an_output_and_no_output_is_none() -> None:
    null = decode(b'{"type":"step.completed","run_id":"r","step_id":"a","payload":null}')
    absent = decode(b'{"type":"step.completed","run_id":"r","step_id":"a"}')
    assert null != absent
    assert isinstance(null, StepCompleted)
    assert bytes(null.payload) == b"null"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kind", ["", "step", "step.exploded", "Step.Started", "workflow.started ", None, 5, ["step.started"]]
)
def test_an_unknown_type_is_malformed(kind: object) -> None:
    with pytest.raises(Malformed):
        decode(body({"type": kind, "run_id": "r", "step_id": "a"}))


@pytest.mark.parametrize("wire", BY_TYPE.values(), ids=BY_TYPE)
@pytest.mark.parametrize("field", ["type", "run_id", "step_id", "payload"])
def test_an_event_without_a_field_it_needs_is_malformed(wire: dict[str, object], field: str) -> None:
    if field not in wire or (field == "payload" and wire["type"] in BARE):
        return
    with pytest.raises(Malformed, match=f"`{field}`"):
        decode(body({key: item for key, item in wire.items() if key != field}))


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": 5},
        {"run_id": None},
        {"step_id": None},
        {"attempt_number": "2"},
        {"attempt_number": True},
        {"payload": "boom"},
        {"payload": []},
    ],
)
def test_a_field_of_another_type_is_malformed(change: dict[str, object]) -> None:
    with pytest.raises(Malformed):
        decode(body(BY_TYPE["step.failed"] | change))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b'"step.started"',
        b"{",
        b"{}",
        b'{"type":"step.started","run_id":"r","step_id":"a"} {}',
        b"{'type':'step.started'}",
        b'{"type":"step.completed","run_id":"r","step_id":"a","payload":NaN}',
        b'{"type":"step.completed","run_id":"r","step_id":"a","payload":01}',
        b'{"type":"step.completed","run_id":"r","step_id":"a","payload":"a\x00b"}',
        b'\xef\xbb\xbf{"type":"step.started","run_id":"r","step_id":"a"}',
        b'{"type":"step.completed","run_id":"r","step_id":"a","payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=range(14),
)
def test_what_is_no_event_is_malformed(text: bytes) -> None:
    with pytest.raises(Malformed):
        decode(text)


@pytest.mark.parametrize("field", [b"run_id", b"payload", b"junk"])
def test_an_event_that_is_not_utf_8_is_malformed_wherever_that_is(field: bytes) -> None:
    text = b'{"type":"step.completed","step_id":"a","' + field + b'":"\xff\xfe","run_id":"r"}'
    with pytest.raises(Malformed):
        decode(text)


def test_the_refusal_says_where_it_hurts() -> None:
    with pytest.raises(Malformed, match=r"\$\.payload\.retry_after_ms"):
        failed({"retry_after_ms": "soon"})


@given(st.binary(max_size=64) | st.text(max_size=64).map(str.encode))
def test_any_bytes_are_an_event_or_malformed(text: bytes) -> None:
    with pytest.raises(Malformed):
        decode(text)


@given(st.data())
def test_any_event_with_a_byte_changed_is_an_event_or_malformed(data: st.DataObject) -> None:
    text = bytearray(body(BY_TYPE[data.draw(st.sampled_from(sorted(BY_TYPE)))]))
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        event = decode(bytes(text))
    except Malformed:
        return
    assert decode(encode(event)) == event
