"""docs/settings.md is made from the table of settings: the two never differ."""

from __future__ import annotations

from penstock.config.keys import KEYS
from scripts.settings_table import PAGE, page


def test_the_page_of_settings_is_what_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python scripts/settings_table.py"


def test_the_page_has_a_row_for_every_key_and_shows_no_machine() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]

    assert [f"| `{name}` " for name in KEYS] == [row[: len(name) + 5] for row, name in zip(rows, KEYS, strict=True)]
    assert not any("/home" in row for row in rows)
