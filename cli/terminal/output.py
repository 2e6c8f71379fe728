"""How results are shown: JSON with `--json`, rich tables on a terminal, plain aligned text anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec import Raw, UnsetType

from penstock.cli.terminal.session import as_json

if TYPE_CHECKING:
    from rich.table import Table

CELL_CHARS_MAX = 120
GAP = 2  # between two columns, and half of it at each edge
WHOLE = frozenset(
    {"RUN", "WORKER", "ABOUT"}
)  # columns that are copied from: on one line, however narrow the terminal is
CUT = frozenset(
    {"OUTPUT OR ERROR", "ERROR"}
)  # columns of payloads and sentences of any length, which are shown whole elsewhere
STATUS_STYLES = {
    "completed": "green",
    "running": "cyan",
    "compensating": "magenta",
    "queued": "blue",
    "failed": "bold red",
    "cancelled": "yellow",
    "skipped": "dim",
    "recovered": "yellow",
    "pending": "dim",
    "scheduled": "blue",
}


def show(value: object, text: Callable[[], None]) -> None:
    """Print `value` as JSON when `--json` was given, else let `text` print for people."""
    if as_json():
        click.echo(to_json(value))
    else:
        text()


def to_json(value: object) -> str:
    """Indented; what a run or step holds as JSON stays as it is."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print one table; no rows print the header alone."""
    cells = [[_cell(header, text) for header, text in zip(headers, row, strict=True)] for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        grid = rich_table(headers, cells, console.width, WHOLE)
        needed = sum((column.width or 0) + GAP for column in grid.columns)
        console.width = max(
            console.width, needed
        )  # where that is wider than the terminal, it breaks the lines itself: nothing is lost
        console.print(grid)
    else:
        click.echo("\n".join(aligned([headers, *cells])))


def fields(rows: Iterable[tuple[str, str]]) -> None:
    """Print `name  value` lines; rows without a value are left out. Nothing is cut."""
    for line in aligned([(name, printable(value)) for name, value in rows if value]):
        click.echo(line)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their widest cell, two spaces between them, no space at line ends."""
    widths = [max(len(text) for text in column) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, whole: Collection[str] = ()) -> Table:
    """Cells fold where the table would be wider than `width`, but for columns that stay `whole`; none is cut."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for header, column in zip(headers, _widths(headers, rows, width, whole), strict=True):
        grid.add_column(header, overflow="fold", width=column)
    for row in rows:
        grid.add_row(*(Text(text, STATUS_STYLES.get(text, "")) for text in row))
    return grid


def _widths(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, whole: Collection[str]) -> list[int]:
    """Of each column. The widest gives way first, down to its header, as long as the table does not fit."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(headers, *rows, strict=True)]
    spare = [0 if header in whole else wide - len(header) for header, wide in zip(headers, widths, strict=True)]
    missing = sum(widths) + GAP * len(widths) - width
    while missing > 0 and any(spare):
        widest = max((wide, at) for at, wide in enumerate(widths) if spare[at])[1]
        widths[widest], spare[widest], missing = widths[widest] - 1, spare[widest] - 1, missing - 1
    return widths


def printable(text: str) -> str:
    """`text` with control characters escaped: what a worker reports must not steer the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def cell(text: str) -> str:
    """`text` on one line of bounded width."""
    line = printable(text[: CELL_CHARS_MAX + 1])
    return line if len(line) <= CELL_CHARS_MAX else line[: CELL_CHARS_MAX - 1] + "…"


def _cell(header: str, text: str) -> str:
    return cell(text) if header in CUT else printable(text)


def optional(value: str | int | Raw | UnsetType | None) -> str:
    """Empty for what is absent; JSON as it is."""
    match value:
        case None | UnsetType():
            return ""
        case Raw():
            return bytes(value).decode()
    return str(value)


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on stderr when that is a terminal; yields the function that advances it by so many, of a new total where
    that is known."""
    if not sys.stderr.isatty():
        yield lambda count, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda count, total: bar.update(task, advance=count, total=total)
