"""The table of metrics in docs/operations.md is made from the code: the two never differ."""

from __future__ import annotations

import re

from penstock.telemetry.metrics import METRICS
from scripts.metrics_table import PAGE, page


def test_the_table_of_metrics_is_what_the_code_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "run: python scripts/metrics_table.py"


def test_every_metric_that_the_page_names_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"\bpenstock_[a-z_]+", text))
    forms = {
        form
        for name, metric in METRICS.items()
        for form in (name, *(f"{name}_{part}" for part in ("bucket", "sum", "count") if metric.bounds))
    }
    assert set(METRICS) <= named
    assert named <= forms
