"""Who exports nothing pays nothing: no process loads OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOADS = """
import importlib, sys
importlib.import_module(sys.argv[1])
from penstock.config.process.traces import trace_headers
print([name for name in sys.modules if name.startswith(("opentelemetry", "google.protobuf"))], trace_headers())
"""


@pytest.mark.parametrize(
    "module",
    [
        "penstock.cli.commands.serve",
        "penstock.actors.processes.children",
        "penstock.actors.telemetry.exporting",
        "penstock.http.app",
        "penstock.worker",
        "penstock.worker.tasks.executor",
        "penstock.worker.http_tasks.worker",
        "penstock.client",
    ],
)
def test_no_process_loads_opentelemetry_by_itself(module: str) -> None:
    loaded = subprocess.run([sys.executable, "-c", LOADS, module], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "[] {}" == loaded.stdout.strip()
