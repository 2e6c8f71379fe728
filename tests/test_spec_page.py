"""docs/spec.md lists what the service promises and the tests that show it: none is missing, none is invented."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.config.settings import HttpSettings, Settings
from penstock.http.app import create_app
from tests.support.routes import api_routes

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "spec.md").read_text()
HEADER = "| row | what holds | shown by |"
ROW = re.compile(r"\| `([a-z0-9.-]+)` \| (.+?) \| (.+) \|")
TEST = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_\w+)`")
PLACE = re.compile(r"`(GET|POST|PUT|PATCH|DELETE) (/[^` ?]*)`")


class Row(NamedTuple):
    id: str
    text: str
    shown_by: str


class Shown(NamedTuple):
    row: str
    file: str
    test: str


def rows() -> list[Row]:
    lines = [line for line in PAGE.splitlines() if line.startswith("|") and line not in (HEADER, "|---|---|---|")]
    matches = [(line, ROW.fullmatch(line)) for line in lines]
    assert [] == [line for line, match in matches if match is None]
    return [Row(*match.groups()) for _, match in matches if match is not None]


def shown(row: Row) -> list[Shown]:
    return [Shown(row.id, file, test) for file, test in TEST.findall(row.shown_by)]


@cache
def defined(file: str) -> frozenset[str]:
    """The test functions of a file; none when there is no such file."""
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def served() -> Iterator[tuple[str, str]]:
    """Each method of each path of the application."""
    for route in api_routes(create_app(Settings(http=HttpSettings(bridge_token="any")))):
        for method in route.methods:
            if not method.internal and method.method != "HEAD":
                yield method.method, route.path


ROWS = rows()


def test_every_row_has_an_id_of_its_own() -> None:
    assert [] == [name for name, count in Counter(row.id for row in ROWS).items() if count > 1]


def test_every_section_has_a_name_of_its_own_and_rows() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    titles = [section.partition("\n")[0] for section in sections]
    assert sorted(set(titles)) == sorted(titles)
    assert [] == [
        title
        for title, section in zip(titles, sections, strict=True)
        if HEADER not in section or not ROW.search(section)
    ]


def test_every_row_names_tests_and_nothing_else() -> None:
    assert [] == [row.id for row in ROWS if not shown(row)]
    assert [] == [row.id for row in ROWS if TEST.sub("", row.shown_by).strip()]
    assert [] == [row.id for row in ROWS if len(set(shown(row))) < len(shown(row))]


def test_every_test_that_is_named_exists() -> None:
    assert [] == [one for row in ROWS for one in shown(row) if one.test not in defined(one.file)]


def test_every_path_and_method_has_a_row_and_every_row_its_path() -> None:
    listed = {place for row in ROWS for place in PLACE.findall(row.text)}
    assert set(served()) == listed


@pytest.mark.parametrize("status", ["400", "401", "403", "404", "405", "409", "413", "500", "503"])
def test_every_status_of_an_error_has_a_row(status: str) -> None:
    assert f"error.{status}" in {row.id for row in ROWS}
