"""How results are shown."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec import UNSET, Raw

from penstock.cli import output


def test_columns_are_aligned_and_lines_have_no_space_at_their_end() -> None:
    assert ["A    LONG", "xyz  1", "q"] == list(output.aligned([("A", "LONG"), ("xyz", "1"), ("q", "")]))


def test_control_characters_never_reach_the_terminal() -> None:
    assert r"a\x1b[31mb\nc\u202ed" == output.printable("a\x1b[31mb\nc\u202ed")
    assert "früh ✓" == output.printable("früh ✓")


def test_cell_is_cut_at_its_width() -> None:
    cut = output.cell("x" * 10_000)
    assert (output.CELL_CHARS_MAX, "…") == (len(cut), cut[-1])
    assert "x" * output.CELL_CHARS_MAX == output.cell("x" * output.CELL_CHARS_MAX)


def test_json_of_payloads_stays_as_it_is() -> None:
    assert '{\n  "a": 1.10\n}' == output.to_json({"a": Raw(b"1.10")})


def test_absent_values_are_empty() -> None:
    assert ("", "7", '{"a":1}') == (output.optional(UNSET), output.optional(7), output.optional(Raw(b'{"a":1}')))


def test_duration_is_short_and_empty_before_the_start() -> None:
    now = datetime(2026, 1, 1, 0, 3, 5, tzinfo=UTC)
    start = "2026-01-01T00:00:00Z"
    assert "" == output.took(UNSET, UNSET)
    assert "0.012s" == output.took(start, "2026-01-01T00:00:00.012Z")
    assert "3m05s" == output.took(start, UNSET, now)
    assert "24h00m" == output.took("2025-12-31T00:03:05Z", UNSET, now)
    assert "0.000s" == output.took(start, "2025-12-31T23:59:59Z")


def test_table_without_rows_prints_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("A", "B"), [])
    assert "A  B\n" == capsys.readouterr().out


def test_rich_table_takes_markup_as_plain_text() -> None:
    from rich.console import Console

    console = Console(width=80)
    with console.capture() as capture:
        console.print(output.rich_table(("A",), [("[red]x[/red]",)]))
    assert "[red]x[/red]" in capture.get()
