"""docs/expressions.md is right: each row of its tables of examples is evaluated, and its bounds are those in force."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from penstock.config import limits
from penstock.engine.expressions.syntax.library import DEPTH_MAX
from penstock.engine.expressions.syntax.names import MACROS_NESTED_MAX
from tests.engine.expressions.values import problems, reason, rendered

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "expressions.md").read_text()
(INPUT,) = re.findall(r"```json\n(.*)\n```", PAGE)
ROW = re.compile(r"^\| `(.+)` \| `(.+)` \|$", re.MULTILINE)


def rows(head: str) -> list[tuple[str, str]]:
    """The rows of all tables with this head."""
    tables = re.findall(rf"^\| {head} \|\n(?:\|.*\n)+", PAGE, re.MULTILINE)
    return [row for table in tables for row in ROW.findall(table)]


@pytest.mark.parametrize(("text", "given"), rows(r"expression \| gives"))
def test_an_expression_gives_what_the_page_says(text: str, given: str) -> None:
    assert rendered(f"${{{{ {text} }}}}", INPUT).decode() == given


@pytest.mark.parametrize(("text", "given"), rows(r"template \| gives"))
def test_a_template_gives_what_the_page_says(text: str, given: str) -> None:
    assert rendered(json.loads(text), INPUT).decode() == given


@pytest.mark.parametrize(("text", "problem"), rows(r"expression \| problem"))
def test_a_problem_is_the_one_of_the_page(text: str, problem: str) -> None:
    assert problems(text) == [problem]


@pytest.mark.parametrize(("text", "failure"), rows(r"expression \| fails with"))
def test_a_failure_is_the_one_of_the_page(text: str, failure: str) -> None:
    assert reason(text, INPUT) == failure


def test_the_page_has_rows_of_every_kind() -> None:
    heads = (r"expression \| gives", r"template \| gives", r"expression \| problem", r"expression \| fails with")

    assert [len(rows(head)) for head in heads] == [27, 7, 6, 4]


@pytest.mark.parametrize(
    "sentence",
    [
        f"| {limits.EXPRESSION_BYTES_MAX // 1024} KiB; nested or chained at most {DEPTH_MAX} deep |",
        f"| nested {['', 'one', 'two'][MACROS_NESTED_MAX]} deep |",
        f"| {limits.EXPRESSION_ITERATIONS_MAX:,} |",
        f"| {limits.EXPRESSION_WORK_MAX:,} units:",
        f"| {limits.EXPRESSION_BYTES_MAX:,} characters and {limits.PATTERN_STATES_MAX:,} states,",
        f"| {limits.EXPRESSION_RESULT_BYTES_MAX // 1024 // 1024} MiB as JSON |",
    ],
)
def test_the_bounds_of_the_page_are_those_in_force(sentence: str) -> None:
    assert sentence in PAGE
