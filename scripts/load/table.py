"""The benchmark's result: medians of all repeats, as JSON and as tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct
from rich.console import Console
from rich.table import Table

from .samples import Sample
from .targets import ROWS, Row

WIDTH = 150
STYLES = {"aim": "green", "must": "yellow", "missed": "red", "": ""}


class Found(Struct, frozen=True):
    """One row: the median of `values`, one for each repeat."""

    unit: str
    median: float
    values: list[float]


class Results(Struct):
    """All that a call of the benchmark found. CPU is µs per run, memory MB, both by row and role; medians of the
    repeats.

    `noise`: by row, as in Cost.
    """

    machine: str
    quick: bool
    rows: dict[str, Found]
    cpu_us: dict[str, dict[str, float]]
    memory_mb: dict[str, dict[str, float]]
    noise: dict[str, dict[str, float]]

    def add(self, samples: Sequence[Sample]) -> None:
        """Take in the repeats of one workload."""
        for row in samples[0].rows:
            values = [sample.rows[row] for sample in samples]
            self.rows[row] = Found(ROWS[row].unit, median(values), values)
        for row in samples[0].costs:
            costs = [sample.costs[row] for sample in samples]
            self.cpu_us[row] = _medians([cost.cpu_us for cost in costs])
            self.noise[row] = _medians([cost.noise for cost in costs])
        if samples[0].memory_mb:
            self.memory_mb[" ".join(samples[0].rows)] = _medians([sample.memory_mb for sample in samples])


def show(results: Results, before: Results | None = None) -> None:
    """Print the tables; `before` adds the ratio to what an earlier call found."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(_rows(results, before))
    for title, part, digits in (
        ("CPU, µs per run (idle: per second)", results.cpu_us, 0),
        ("Memory (PSS), MB", results.memory_mb, 0),
        ("Noise: shares of the machine, and its pace", results.noise, 2),
    ):
        if part:
            console.print(_by_role(title, part, digits))


def _rows(results: Results, before: Results | None) -> Table:
    table = Table(title="Benchmark" + (" (quick: the figures mean nothing)" if results.quick else ""))
    for name in ("workload", "median", "unit", "range", "must", "aim", "reached", *(["to before"] if before else [])):
        table.add_column(name, justify="left" if name in ("workload", "unit", "reached") else "right")
    for name, found in results.rows.items():
        earlier = [_ratio(name, found, before)] if before else []
        table.add_row(*_cells(name, ROWS[name], found), *earlier)
    return table


def _cells(name: str, row: Row, found: Found) -> tuple[str, ...]:
    verdict = row.verdict(found.median)
    span = f"{_figure(min(found.values))} to {_figure(max(found.values))}" if len(found.values) > 1 else ""
    styled = f"[{STYLES[verdict]}]{verdict}[/]" if verdict else ""
    return f"{name}: {row.text}", _figure(found.median), row.unit, span, _figure(row.must), _figure(row.aim), styled


def _ratio(name: str, found: Found, before: Results) -> str:
    earlier = before.rows.get(name)
    return f"{found.median / earlier.median:.2f}" if earlier and earlier.median else ""


def _by_role(title: str, part: Mapping[str, Mapping[str, float]], digits: int) -> Table:
    table = Table(title=title)
    roles = list(dict.fromkeys(role for values in part.values() for role in values))
    table.add_column("workload")
    for role in [*roles, *(["all"] if digits == 0 else [])]:
        table.add_column(role, justify="right")
    for workload, values in part.items():
        total = [f"{sum(values.values()):,.0f}"] if digits == 0 else []
        table.add_row(workload, *(f"{values[role]:,.{digits}f}" if role in values else "" for role in roles), *total)
    return table


def _medians(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: round(median(part[name] for part in parts), 3) for name in parts[0]}


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
