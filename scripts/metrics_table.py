"""Writes the table of metrics in docs/operations.md out of telemetry/metrics.py."""

from __future__ import annotations

from pathlib import Path

from penstock.telemetry.metrics import METRICS, Metric

PAGE = Path(__file__).resolve().parents[1] / "docs" / "operations.md"
BEGIN = "<!-- metrics: written by scripts/metrics_table.py out of telemetry/metrics.py; a test compares the two -->\n"
END = "<!-- end of metrics -->\n"
HEAD = "| metric | kind | labels | meaning |\n|---|---|---|---|\n"


def page(text: str) -> str:
    """The page with the table as it should be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, "the page has no place for the table"
    return before + BEGIN + HEAD + "".join(map(_row, METRICS.values())) + END + after


def _row(metric: Metric) -> str:
    labels = (*(("host", "process") if metric.of == "process" else ()), *metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {', '.join(labels)} | {metric.help} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE}")
