"""A comparison as tables: what was found, and the same in parts of the first system's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.table import Table

from .comparison import Comparison, Found

WIDTH = 150
COLUMNS: dict[str, Callable[[dict[int, Found]], float]] = {
    "runs/s, 16": lambda found: found[16].runs_per_s,
    "runs/s, 64": lambda found: found[64].runs_per_s,
    "p50, ms": lambda found: found[1].p50_ms,
    "p99, ms": lambda found: found[1].p99_ms,
    "CPU, µs, 16": lambda found: found[16].cpu_us,
    "CPU, µs, 64": lambda found: found[64].cpu_us,
    "CPU, µs, 1": lambda found: found[1].cpu_us,
}


def show(comparison: Comparison) -> None:
    """Print the tables, how each system is set up, and why others are missing."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(_table("Beside other systems: runs of three steps", comparison, lambda value, _: _figure(value)))
    console.print(_table("The same, to penstock", comparison, lambda value, first: f"{value / first:.2f}"))
    console.print("Share of the machine that went to others: " + ", ".join(_others(comparison)), highlight=False)
    for line in notes(comparison):
        console.print(line, markup=False, highlight=False)


def notes(comparison: Comparison) -> Iterator[str]:
    """A line for each system: how it is set up, or why it was skipped."""
    yield f"{comparison.machine}; everything runs on this machine, one system at a time."
    yield "Three-step runs by 16 and by 64 users; p50 and p99 of one user alone; CPU of a run by so many users."
    for name, how in comparison.how.items():
        why = comparison.skipped.get(name)
        yield f"{name}: {how}." if why is None else f"{name}: skipped: {why}"


def _table(title: str, comparison: Comparison, text: Callable[[float, float], str]) -> Table:
    table = Table(title=title)
    table.add_column("system")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    first = next(iter(comparison.found.values()), {})
    for name, found in comparison.found.items():
        table.add_row(name, *(text(read(found), read(first)) for read in COLUMNS.values()))
    return table


def _others(comparison: Comparison) -> Iterator[str]:
    for name, found in comparison.found.items():
        yield f"{name} {100 * max(one.others for one in found.values()):.0f} %"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
