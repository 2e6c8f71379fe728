"""Subjects that users name: what they may be, and which are the service's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.definition.subjects import RESERVED, SUBJECT_CHARS_MAX, problem_with_subject


@pytest.mark.parametrize(
    "subject", ["a", "a.b.c", "event.x", "Ünï-_/~", "histories.x", "History.x", "x.history", "x.$JS", "a" * 255]
)
def test_what_may_be_published_to(subject: str) -> None:
    assert problem_with_subject("subject", subject) is None
    assert problem_with_subject("subject", subject, wildcards=True) is None


@pytest.mark.parametrize(
    "subject",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a b",
        "a\tb",
        "a\n",
        "a\x00b",
        "a\x7f",
        "a\u2028b",
        "*",
        ">",
        "*.a",
        ">.a",
        "a.b>",
        "a.b*",
        "a.>.b",
    ],
)
def test_what_is_no_subject_is_refused_with_and_without_wildcards(subject: str) -> None:
    for wildcards in (False, True):
        found = problem_with_subject("subject", subject, wildcards=wildcards)
        assert found is not None
        assert found.startswith('subject "')
        assert found.isprintable()


@pytest.mark.parametrize("subject", ["a.*", "a.>", "a.*.b", "a.*.>", "a.*.*"])
def test_wildcards_are_for_those_who_listen(subject: str) -> None:
    assert problem_with_subject("subject", subject, wildcards=True) is None
    assert (
        problem_with_subject("subject", subject) == f'subject "{subject}" must be tokens with single dots between them'
    )


def test_the_refusal_of_a_pattern_says_where_wildcards_may_stand() -> None:
    expected = 'subject ">" must be tokens with single dots between them, the first without wildcards'
    assert problem_with_subject("subject", ">", wildcards=True) == expected


@pytest.mark.parametrize("first", [*sorted(RESERVED), "$JS", "$KV", "$SYS", "$"])
@pytest.mark.parametrize("rest", ["", ".x", ".x.y"])
def test_what_the_service_says_to_itself_is_not_for_users(first: str, rest: str) -> None:
    for wildcards in (False, True):
        found = problem_with_subject("config: subject", first + rest, wildcards=wildcards)
        assert found == f'config: subject "{first + rest}" belongs to the service itself'


def test_a_subject_has_a_most() -> None:
    assert (
        problem_with_subject("subject", "a" * (SUBJECT_CHARS_MAX + 1)) == "subject has 256 characters, 255 is the most"
    )


@pytest.mark.parametrize(
    ("value", "kind"), [(None, "null"), (3, "a number"), ([], "an array"), ({}, "an object"), (True, "a boolean")]
)
def test_what_is_no_text_is_no_subject(value: object, kind: str) -> None:
    assert problem_with_subject("subject", value) == f"subject must be a string, not {kind}"


@given(st.text(max_size=40), st.booleans())
def test_any_text_is_fit_or_refused_in_one_printable_line(text: str, wildcards: bool) -> None:
    found = problem_with_subject("subject", text, wildcards=wildcards)
    assert found is None or found.isprintable()
    if found is None:
        assert all(text.split("."))
        assert not set(text) & set(" \t\r\n")
        assert wildcards or not {"*", ">"} & set(text)
