"""How results are shown."""

from __future__ import annotations

import pytest
from msgspec import UNSET, Raw

from penstock.cli.terminal import output


def test_columns_are_aligned_and_lines_have_no_space_at_their_end() -> None:
    assert ["A    LONG", "xyz  1", "q"] == list(output.aligned([("A", "LONG"), ("xyz", "1"), ("q", "")]))


def test_control_characters_never_reach_the_terminal() -> None:
    assert r"a\x1b[31mb\nc\u202ed" == output.printable("a\x1b[31mb\nc\u202ed")
    assert "früh ✓" == output.printable("früh ✓")


def test_only_payloads_and_errors_are_cut_and_no_id_ever(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 128
    output.table(("RUN", "TASKS", "ERROR"), [(long, f"{long}, {long}", long * 2)])
    assert f"{long}  {long}, {long}  {output.cell(long * 2)}" in capsys.readouterr().out
    output.fields([("error", long * 2)])
    assert f"error  {long * 2}\n" == capsys.readouterr().out


def test_cell_is_cut_at_its_width() -> None:
    cut = output.cell("x" * 10_000)
    assert (output.CELL_CHARS_MAX, "…") == (len(cut), cut[-1])
    assert "x" * output.CELL_CHARS_MAX == output.cell("x" * output.CELL_CHARS_MAX)


def test_json_of_payloads_stays_as_it_is() -> None:
    assert '{\n  "a": 1.10\n}' == output.to_json({"a": Raw(b"1.10")})


def test_absent_values_are_empty() -> None:
    assert ("", "7", '{"a":1}') == (output.optional(UNSET), output.optional(7), output.optional(Raw(b'{"a":1}')))


def test_table_without_rows_prints_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("A", "B"), [])
    assert "A  B\n" == capsys.readouterr().out


def test_rich_table_takes_markup_as_plain_text() -> None:
    from rich.console import Console

    console = Console(width=80)
    with console.capture() as capture:
        console.print(output.rich_table(("A",), [("[red]x[/red]",)], 80))
    assert "[red]x[/red]" in capture.get()


def test_the_widest_columns_give_way_first_and_no_header_or_whole_cell_does() -> None:
    headers, row = ("RUN", "LAST SEEN", "TASKS"), ("r" * 20, "3s ago", "hello, shout, whisper")
    widths = {
        width: [column.width for column in output.rich_table(headers, [row], width, ("RUN",)).columns]
        for width in (80, 50, 10)
    }
    assert {80: [20, 9, 21], 50: [20, 9, 15], 10: [20, 9, 5]} == widths
