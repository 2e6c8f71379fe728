"""The form of archived runs: any history is read as it was written, and what was written once is read for ever."""

from __future__ import annotations

import zlib
from base64 import b64decode
from hashlib import sha256
from itertools import accumulate

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker import names
from penstock.broker.archive.archived_runs import (
    ArchivedAt,
    ArchivedHead,
    ArchivedRun,
    RunArchived,
    RunRestored,
    archive_mark_in,
    archive_seq,
    decode_archived,
    encode_archive_mark,
    encode_archived,
)
from penstock.broker.archive.dictionary import DICTIONARIES, NEWEST
from penstock.broker.nats.direct import Stored
from penstock.engine.errors import NeedsUpgrade
from penstock.engine.run.event_payloads import TriggerRef
from penstock.engine.run.events import Malformed, decode
from penstock.engine.run.state import RunStatus

RUN = "01a21aaca54b70fba1f6ff865a7c4e24"
SUBJECT = names.stored_subject(RUN)
HEAD = ArchivedHead(
    "order", RunStatus.FAILED, 1_795_000_000_000_000, 1_795_000_000_000_001, 5, "a" * 32, None, {"team": "red"},
    TriggerRef(name="push", kind="webhook"),
)  # fmt: skip
EVENTS = (
    Stored(SUBJECT, 7, 1_795_000_000.5, b'{"type":"workflow.started","run_id":"%b"}' % RUN.encode()),
    Stored(SUBJECT, 4_000_000_000, 1_795_000_001.000001, b"no event, \xff\x00"),
)
DIGESTS = {1: "ef61ad71b7262f79950ebb143a80b563b64f2d7e57206d59ee52db3ea4445e35"}
RECORDED = b64decode(
    "AZt6UwFIGhkmJiYnmpokmRukJSUappmlpVmYmSaaJ5ukGpnMXJpflJJatAySKM8zsCV0M8YbMMAYjKw3FRIJgAONS0pSE3MXAxtE"
    "TUtApdCSgtLijCWgwmw5tKSbxH7uXbb6z0kQY9MuKpxjYF+oOOmIO7G5AK8flGqP8OTlK4CLTR2F/wwA"
)


def places(run: ArchivedRun) -> list[tuple[str, int, float, bytes]]:
    return [(one.subject, one.seq, one.at, one.data) for one in run.events]


@given(
    steps=st.lists(st.integers(1, 2**40), min_size=1, max_size=20),
    at_us=st.integers(0, 2**51),  # the year 2041
    moves=st.lists(st.integers(-(10**9), 10**9), min_size=20, max_size=20),
    bodies=st.lists(st.binary(max_size=300), min_size=20, max_size=20),
)
def test_any_history_is_read_as_it_was_written(
    steps: list[int], at_us: int, moves: list[int], bodies: list[bytes]
) -> None:
    times = [at / 1e6 for at in accumulate(moves, initial=at_us)]
    events = [
        Stored(SUBJECT, seq, at, data)
        for seq, at, data in zip(accumulate(steps), times[: len(steps)], bodies[: len(steps)], strict=True)
    ]
    found = decode_archived(encode_archived(ArchivedRun(RUN, HEAD, events)), 9)
    assert (RUN, HEAD, 9) == (found.run_id, found.head, found.seq)
    assert places(ArchivedRun(RUN, HEAD, events)) == places(found)
    assert {9} == {archive_seq(one) for one in found.events}
    assert [events[-1].seq] == [one.seq for one in found.after(events[-1].seq - 1)]
    assert found.at(events[0].seq) == found.events[0]
    assert found.at(events[-1].seq + 1) is None


def test_what_was_archived_before_is_read() -> None:
    found = decode_archived(RECORDED, 3)
    assert (RUN, HEAD) == (found.run_id, found.head)
    assert places(ArchivedRun(RUN, HEAD, EVENTS)) == places(found)


def test_a_dictionary_never_changes() -> None:
    assert DIGESTS == {number: sha256(text).hexdigest() for number, text in DICTIONARIES.items()}
    assert max(DICTIONARIES) == NEWEST


def test_a_message_of_a_newer_version_waits_and_a_damaged_one_is_none() -> None:
    with pytest.raises(NeedsUpgrade):
        decode_archived(bytes([NEWEST + 1]) + RECORDED[1:], 3)
    with pytest.raises((zlib.error, msgspec.MsgspecError)):
        decode_archived(RECORDED[:40], 3)


def test_marks_are_no_events_and_lead_to_their_message() -> None:
    for kind in (RunArchived, RunRestored):
        mark = kind(run_id=RUN, timestamp="2026-12-01T00:00:00Z", payload=ArchivedAt(12))
        body = encode_archive_mark(mark)
        assert mark == archive_mark_in(body)
        with pytest.raises(Malformed):
            decode(body)
    assert archive_mark_in(EVENTS[0].data) is None
