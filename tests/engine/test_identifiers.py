"""Names become subject tokens and keys: what may pass, and how an offender is shown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.definition.identifiers import is_run_id, problem_with, quoted, shown


@pytest.mark.parametrize("name", ["a", "A-Z_09", "orders.v2.eu", "-", "_", "0", "a" * 128, ".".join("a" * 64)])
def test_a_well_formed_name_has_no_problem(name: str) -> None:
    assert problem_with("workflow name", name) is None


@pytest.mark.parametrize(
    "name", [".a", "a.", "a..b", ".", "a b", "a*", ">", "a/b", "é", "a\n", "a\x00", "a\u202eb", "\uff11"]
)
def test_a_name_that_would_break_a_subject_is_named(name: str) -> None:
    problem = problem_with("step id", name)
    assert problem == f"step id {quoted(name)} may hold only A-Z a-z 0-9 _ - and single dots between them"
    assert problem.isprintable()


@pytest.mark.parametrize(
    ("value", "kind"),
    [(None, "null"), (True, "a boolean"), (3, "a number"), (1.5, "a number"), ([], "an array"), ({}, "an object")],
)
def test_a_name_that_is_no_string_is_refused_by_its_kind(value: object, kind: str) -> None:
    assert problem_with("task", value) == f"task must be a string, not {kind}"


def test_an_empty_name_is_refused() -> None:
    assert problem_with("task", "") == "task is empty"


def test_a_name_of_129_characters_is_refused() -> None:
    problem = problem_with("task", "a" * 129)
    assert problem is not None
    assert problem.endswith("has 129 characters, 128 is the most")


def test_a_megabyte_of_a_name_is_shown_short() -> None:
    problem = problem_with("task", "\x1b" * 1_000_000)
    assert problem is not None
    assert len(problem) < 700
    assert "1000000 characters" in problem


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain", '"plain"'),
        ('say "hi"', r'"say \"hi\""'),
        ("a\\b", r'"a\\b"'),
        ("a\x00\n", r'"a\x00\n"'),
        ("\u202e", r'"\u202e"'),
    ],
)
def test_quoting_escapes_what_does_not_print(text: str, written: str) -> None:
    assert quoted(text) == written


@given(st.text())
def test_whatever_is_quoted_stands_on_one_line(text: str) -> None:
    assert quoted(text).isprintable()


def test_a_text_within_the_bound_is_shown_whole() -> None:
    assert shown("a" * 10, most=10) == "a" * 10
    assert shown("a" * 11, most=10) == "a" * 10 + "…"


@given(st.text(max_size=140))
def test_the_rule_is_the_one_of_the_protocol(name: str) -> None:
    allowed = bool(re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", name)) and not (
        name[0] == "." or name[-1] == "." or ".." in name
    )
    assert (problem_with("name", name) is None) == allowed


@pytest.mark.parametrize("text", ["0" * 32, "0190a1b2c3d4e5f60718293a4b5c6d7e"])
def test_32_lowercase_hex_characters_are_a_run_id(text: str) -> None:
    assert is_run_id(text)


@pytest.mark.parametrize("text", ["", "0" * 31, "0" * 33, "0" * 31 + "A", "0" * 31 + "g", "0" * 32 + "\n", "٣" * 32])
def test_anything_else_is_no_run_id(text: str) -> None:
    assert not is_run_id(text)
