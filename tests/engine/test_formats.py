"""What is meant for a newer version is left alone: it is neither taken for something else nor for broken."""

from __future__ import annotations

import msgspec
import pytest

from penstock.engine import formats
from penstock.engine.definition.definitions import from_json
from penstock.engine.errors import NeedsUpgrade
from penstock.engine.run.events import Malformed, StepStarted, decode, encode
from penstock.engine.run.state import Run, RunStatus, from_snapshot, to_snapshot

RUN = "01999999000070008000000000000000"
NEWER = formats.VERSION + 1


def event(**fields: object) -> bytes:
    return msgspec.json.encode({"type": "step.started", "run_id": RUN, "step_id": "a", **fields})


def test_an_event_says_no_version_while_the_first_will_do() -> None:
    written = encode(StepStarted(run_id=RUN, step_id="a"))
    assert b'"v"' not in written
    assert 1 == decode(written).v


@pytest.mark.parametrize("known", range(1, formats.VERSION + 1))
def test_an_event_for_a_version_up_to_ours_is_read(known: int) -> None:
    assert known == decode(event(v=known)).v


@pytest.mark.parametrize("fields", [{}, {"type": "step.teleported"}, {"payload": 7, "attempt_number": "two"}], ids=str)
def test_an_event_for_a_newer_version_needs_an_upgrade_whatever_it_holds(fields: dict[str, object]) -> None:
    with pytest.raises(NeedsUpgrade, match=f"format {NEWER}"):
        decode(event(**fields, v=NEWER))


@pytest.mark.parametrize("fields", [{"type": "step.teleported"}, {"v": "two"}, {"v": 1, "step_id": 3}], ids=str)
def test_an_event_that_nobody_can_read_is_malformed_still(fields: dict[str, object]) -> None:
    with pytest.raises(Malformed):
        decode(event(**fields))


def test_a_snapshot_carries_its_version_in_front() -> None:
    run = Run(RUN, "w", "1", "d", RunStatus.RUNNING, "", 7)
    plain = to_snapshot(run)
    assert b'"v"' not in plain
    newer = formats.stamped(plain, NEWER)
    assert newer.startswith(b'{"v":%d,"run_id"' % NEWER)
    assert {**msgspec.json.decode(plain), "v": NEWER} == msgspec.json.decode(newer)
    assert from_snapshot(plain) == run
    with pytest.raises(NeedsUpgrade):
        from_snapshot(newer)


def test_a_definition_for_a_newer_version_needs_an_upgrade() -> None:
    with pytest.raises(NeedsUpgrade):
        from_json(b'{"v":%d,"name":"w","steps":[{"id":"a","type":"teleport"}]}' % NEWER)
    assert "w" == from_json(b'{"v":1,"name":"w","steps":[]}').name


@pytest.mark.parametrize("body", [b"", b"[]", b'{"v":', b'{"v":"2"}', b"\xff"])
def test_what_is_no_document_is_no_newer_one(body: bytes) -> None:
    formats.check(body)
