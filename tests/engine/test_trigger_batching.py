"""When a batch of a trigger ends, and what it holds: laws for any course of events."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.errors import Invalid, TooLarge
from penstock.engine.trigger.batching import (
    Batch,
    BatchState,
    Debounce,
    due_at,
    extended,
    is_full,
    key_text,
    key_token,
    run_value,
)
from penstock.engine.trigger.trigger import parse

PAGE = (Path(__file__).parents[2] / "docs" / "triggers.md").read_text()
JSON_BLOCK = re.compile(r"```json\n(.*?)\n```", re.DOTALL)
pauses = st.lists(st.floats(0, 30), max_size=40)


def course(how: Debounce | Batch, spans: list[float], size: int = 10) -> list[tuple[BatchState, float, float]]:
    """Every batch of events that come one after the other, with when it began and when it ended."""
    now, open_batch, stored_at, found = 0.0, None, 0.0, []

    def end(at: float) -> None:
        assert open_batch is not None
        found.append((open_batch, open_batch.since_when(stored_at), at))

    for seq, span in enumerate(spans, start=1):
        now += span
        if open_batch is not None:
            due = due_at(how, open_batch.since_when(stored_at), stored_at)
            if due <= now or is_full(how, open_batch, size):
                end(min(due, now))
                open_batch = None
        open_batch, stored_at = extended(how, open_batch, stored_at, seq=seq, size=size, at=now), now
        if is_full(how, open_batch):
            end(now)
            open_batch = None
    if open_batch is not None:
        end(due_at(how, open_batch.since_when(stored_at), stored_at))
    return found


@given(pauses, st.integers(1, 20), st.integers(0, 60))
def test_a_debounce_ends_after_its_period_or_its_longest_wait(spans: list[float], period: int, more: int) -> None:
    how = Debounce(f"{period}s", f"{period + more}s")
    for state, since, ended_at in course(how, spans):
        assert ended_at == min(state.at + period, since + (period + more))
        assert not is_full(how, state)


@given(pauses, st.integers(1, 5), st.integers(1, 60))
def test_a_batch_ends_with_its_size_or_its_period(spans: list[float], size: int, period: int) -> None:
    found = course(Batch(size, f"{period}s"), spans)
    assert all(state.count <= size for state, _, _ in found)
    for state, since, ended_at in found:
        assert ended_at <= since + period
        assert state.count == size or ended_at == since + period


@given(pauses, st.sampled_from([Debounce("3s", "9s"), Batch(4, "5s")]))
def test_each_event_is_in_exactly_one_batch_in_order(spans: list[float], how: Debounce | Batch) -> None:
    found = [state for state, _, _ in course(how, spans)]
    assert [*range(1, len(spans) + 1)] == [seq for one in found for seq in range(one.first, one.seq + 1)]
    assert all(one.count == one.seq - one.first + 1 for one in found)


@given(st.lists(st.integers(1, PAYLOAD_BYTES_MAX - 2), min_size=1, max_size=12))
def test_an_array_never_has_more_than_a_run_may_get(sizes: list[int]) -> None:
    how, state, lengths = Batch(1000, "1m"), None, []
    for seq, size in enumerate(sizes, start=1):
        if state is not None and is_full(how, state, size):
            state = None
            lengths.clear()
        state = extended(how, state, 1.0, seq=seq, size=size, at=1.0)
        lengths.append(size)
        assert state.bytes + 2 == sum(lengths) + len(lengths) - 1 + 2 <= PAYLOAD_BYTES_MAX


def test_an_event_that_no_run_can_have_is_refused() -> None:
    with pytest.raises(TooLarge, match="the event has 1048575 bytes, 1048574 is the most"):
        extended(Batch(2, "1s"), None, 0.0, seq=1, size=PAYLOAD_BYTES_MAX - 1, at=0.0)
    assert extended(Debounce("1s", "1s"), None, 0.0, seq=1, size=PAYLOAD_BYTES_MAX, at=0.0).count == 1


def test_a_run_gets_the_last_event_or_all() -> None:
    assert bytes(run_value(Debounce("1s", "1s"), [b"1", b"2"])) == b"2"
    assert bytes(run_value(Batch(2, "1s"), [b'{"a": 1}', b"2"])) == b'[{"a": 1},2]'


@pytest.mark.parametrize(
    ("value", "text"), [("a", "a"), (7, "7"), (1.5, "1.5"), (True, "true"), (None, "null"), ("é" * 200, "é" * 200)]
)
def test_a_key_is_compared_as_text(value: Any, text: str) -> None:
    found = key_text(Batch(1, "1s", "event.k"), Raw(orjson.dumps({"k": value})))
    assert found == text
    assert len(key_token(found)) == 32


def test_without_a_key_all_events_belong_together() -> None:
    assert key_text(Batch(1, "1s"), Raw(b"[1]")) == key_text(Batch(1, "1s"), Raw(b"2")) == ""


@pytest.mark.parametrize("event", [b"{}", b"[]", b'{"k": {}}', b'{"k": []}', b"null"])
def test_an_event_whose_key_fails_is_refused(event: bytes) -> None:
    with pytest.raises(Invalid, match=r"^key: "):
        key_text(Batch(1, "1s", "event.k"), Raw(event))


def test_the_examples_of_the_page_are_triggers() -> None:
    section = PAGE.partition("## Several events in one run")[2].partition("\n## ")[0]
    found = [parse({"name": "t", **orjson.loads(body)}) for body in JSON_BLOCK.findall(section)]
    assert [one.batching for one in found] == [Debounce("2s", "1m", "event.page"), Batch(500, "10s")]
