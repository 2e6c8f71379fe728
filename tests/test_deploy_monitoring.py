"""Prometheus rules and the Grafana dashboard: valid, of metrics and labels that exist, the same alerts as the docs say;
and they fire."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.telemetry.metrics import METRICS, Metric
from tests.support.tools import PROMTOOL

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "deploy" / "monitoring"
OF_PROMETHEUS = {"up", "ALERTS"}
SERIES = re.compile(r"\b(penstock_\w+)(?:\{([^}]*)\})?")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool here")

RULES_TEST = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: penstock_partitions_unowned, values: "0 0 4 4 4 4"}
      - {series: 'penstock_queue_oldest_seconds{task="hello"}', values: "400x20"}
      - {series: 'penstock_run_events_total{event="completed",workflow="w"}', values: "0+90x30"}
      - {series: 'penstock_run_events_total{event="failed",workflow="w"}', values: "0+10x30"}
    alert_rule_test:
      - {eval_time: 1m, alertname: PenstockPartitionsUnowned, exp_alerts: []}
      - eval_time: 4m
        alertname: PenstockPartitionsUnowned
        exp_alerts:
          - exp_labels: {severity: critical}
            exp_annotations:
              title: runs make no progress
              summary: "4 of 32 partitions have no owner: their runs make no progress."
              description: Is an engine running? See `lease_lost` and `process_died` in its log.
      - eval_time: 25m
        alertname: PenstockRunsFail
        exp_alerts:
          - exp_labels: {severity: warning}
            exp_annotations:
              title: runs fail
              summary: 10% of the runs that end fail.
              description: "`penstock run list --status failed` and `penstock dlq list` show which runs and why."
"""


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((EXAMPLES / "rules.yml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EXAMPLES / "grafana-dashboard.json").read_text())
    return found


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", []))


def labels_of(metric: Metric) -> set[str]:
    own = {"host", "process"} if metric.of == "process" else set()
    return {*metric.labels, *own, *({"le"} if metric.kind == "histogram" else ())}


def run_promtool(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL
    return subprocess.run([PROMTOOL, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


@needs_promtool
def test_promtool_accepts_the_rules_and_the_configuration() -> None:
    for arguments in (("check", "rules", "rules.yml"), ("check", "config", "--syntax-only", "prometheus.yml")):
        checked = run_promtool(*arguments, cwd=EXAMPLES)
        assert 0 == checked.returncode, checked.stderr


@needs_promtool
def test_the_alerts_fire_when_they_should(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text((EXAMPLES / "rules.yml").read_text())
    (tmp_path / "test.yml").write_text(RULES_TEST)
    checked = run_promtool("test", "rules", "test.yml", cwd=tmp_path)
    assert 0 == checked.returncode, checked.stdout + checked.stderr


@needs_promtool
def test_promtool_accepts_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    found = [expr.replace("$__rate_interval", "5m") for expr in expressions()]
    group = {
        "name": "dashboard",
        "rules": [{"record": f"r{number}", "expr": expr} for number, expr in enumerate(found)],
    }
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [group]}))
    checked = run_promtool("check", "rules", "rules.yml", cwd=tmp_path)
    assert 0 == checked.returncode, checked.stderr


@pytest.mark.parametrize("expr", list(expressions()))
def test_an_expression_asks_for_metrics_and_labels_that_exist(expr: str) -> None:
    named = SERIES.findall(expr)
    assert named or any(name in expr for name in OF_PROMETHEUS)
    for name, matchers in named:
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        metric = METRICS.get(name) or METRICS[base]
        assert (metric.kind == "histogram") == (name != metric.name)
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) <= labels_of(metric)
    for by in re.findall(r"by \(([^)]*)\)", expr):
        known = set().union(
            *(labels_of(METRICS[re.sub(r"_(bucket|sum|count)$", "", name)]) for name, _ in named if name)
        )
        assert {label.strip() for label in by.split(",")} <= known


def test_the_docs_list_the_same_alerts() -> None:
    text = (
        (ROOT / "docs" / "operations.md").read_text().partition("Recommended alerts")[2].partition("\n\nThe stream")[0]
    )
    listed = {
        (title, expr.replace("\\|", "|"), time)
        for title, expr, time in re.findall(r"^\| ([^|]+?) \| `([^`]+)` \| (\w+) \|$", text, re.M)
    }
    assert {(rule["annotations"]["title"], rule["expr"], rule["for"]) for rule in rules()} == listed


def test_the_dashboards_panels_have_their_own_places_and_ids() -> None:
    panels = dashboard()["panels"]
    assert len(panels) == len({panel["id"] for panel in panels})
    taken = [(x, y) for panel in panels for x in range_of(panel, "x", "w") for y in range_of(panel, "y", "h")]
    assert len(taken) == len(set(taken))
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    assert {"${datasource}"} == {panel["datasource"]["uid"] for panel in panels if panel["type"] != "row"}


def range_of(panel: dict[str, Any], start: str, size: str) -> range:
    place = panel["gridPos"]
    return range(place[start], place[start] + place[size])
