"""Who knows nothing of whom, beyond what the import contracts say: the service of workers, and the engine of their
registrations."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SERVICE = ("penstock.cli.commands.serve", "penstock.actors.processes.children", "penstock.http.app")

# Loads a process of the service, and tells which modules of the SDK came with it.
LOADS = """
import importlib, sys
importlib.import_module(sys.argv[1])
print([name for name in sys.modules if name.startswith("penstock.worker")])
"""


@pytest.mark.parametrize("module", SERVICE)
def test_no_process_of_the_service_can_execute_steps(module: str) -> None:
    loaded = subprocess.run([sys.executable, "-c", LOADS, module], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "[]" == loaded.stdout.strip()


def test_nothing_that_runs_workflows_reads_who_is_registered_to_work() -> None:
    """The bucket is for people to look at; only who registers workers, who lists them, and a front end
    that has handed tasks to workers over HTTP and asks which of those have left, touches it; who explains why a run
    waits; and a backup, which leaves it out. The engine never does."""
    users = {
        path.relative_to(ROOT).as_posix()
        for folder in ("engine", "actors", "http", "client", "worker")
        for path in (ROOT / folder).rglob("*.py")
        if _uses(path)
    }
    assert {
        "actors/backup/contents.py",
        "actors/diagnosis/registrations.py",
        "http/bridge/routes.py",
        "http/bridge/departures.py",
        "http/resources/workers.py",
        "worker/transports/direct.py",
    } == users
    in_broker = {path.name for path in (ROOT / "broker").rglob("*.py") if _names(path)}
    assert {"names.py", "provisioning.py", "store.py"} == in_broker


def _uses(path: Path) -> bool:
    """Whether a module takes the bucket from the store, or names it."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    taken = any(
        isinstance(node, ast.Attribute) and node.attr == "workers" and ast.unparse(node.value).endswith("store")
        for node in nodes
    )
    return taken or _names(path)


def _names(path: Path) -> bool:
    nodes = ast.walk(ast.parse(path.read_text()))
    return any(
        (isinstance(node, ast.Attribute) and ast.unparse(node) == "names.WORKERS")
        or (isinstance(node, ast.Constant) and node.value == "workers")
        for node in nodes
    )
