"""Answers are cut the same, whatever pieces they arrive in."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load.framing import BadAnswerError, End, Framing, Happening, Happenings, Head, Part

SIZED = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nab\r\n\r\n1\r\n!\r\n0\r\nTrailer: t\r\n\r\n"
ANSWERS = SIZED + EMPTY + CHUNKED + SIZED

STREAM = b': hello\n\nevent: step.started\nid: 7\ndata: {"a":"b: c"}\n\n: quiet\n\nid: 8\ndata: {}\n\nevent: cut'


def parts(pieces: list[bytes]) -> list[Part]:
    framing = Framing()
    return [part for piece in pieces for part in framing.feed(piece)]


def whole(found: list[Part]) -> list[tuple[int, bytes]]:
    """Status and body of each answer that has ended."""
    answers: list[tuple[int, bytes]] = []
    status, body = 0, b""
    for part in found:
        if isinstance(part, Head):
            status, body = part.status, b""
        elif isinstance(part, End):
            answers.append((status, body))
        else:
            body += part
    return answers


@given(st.lists(st.integers(0, len(ANSWERS)), max_size=20))
def test_answers_do_not_depend_on_how_they_are_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(ANSWERS)]
    pieces = [ANSWERS[begin:end] for begin, end in pairwise(edges)]
    assert [(201, b"hello"), (204, b""), (200, b"ab\r\n!"), (201, b"hello")] == whole(parts(pieces))


@given(st.integers(0, len(STREAM)))
def test_events_do_not_depend_on_how_they_are_cut(cut: int) -> None:
    happenings = Happenings()
    found = happenings.feed(STREAM[:cut]) + happenings.feed(STREAM[cut:])
    assert [Happening("7", "step.started", b'{"a":"b: c"}'), Happening("8", "message", b"{}")] == found


def test_an_answer_that_is_not_over_has_no_end() -> None:
    assert [] == whole(parts([SIZED[:-1]]))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"SMTP ready\r\n\r\n", "Expected HTTP/"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "how long"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "chunk size"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_100_000, "no end"),
    ],
)
def test_what_is_no_answer_is_refused(answer: bytes, problem: str) -> None:
    with pytest.raises(BadAnswerError, match=problem):
        parts([answer])
