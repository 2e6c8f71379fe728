"""What processes of the service must not have in memory: rich and pygments are 4 MB in each of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

IMPORTED = """
import sys, {module}
assert not {{"rich", "pygments"}} & sys.modules.keys()
import rich
"""


@pytest.mark.parametrize(
    "module",
    [
        "penstock.cli.commands.serve",
        "penstock.actors.processes.children",
        "penstock.http.app",
        "penstock.worker",
        "penstock.actors.evaluation.process",
    ],
)
def test_a_process_does_not_import_rich_which_can_be_imported_later(module: str) -> None:
    subprocess.run([sys.executable, "-c", IMPORTED.format(module=module)], check=True, timeout=60)


def test_what_is_imported_already_stays() -> None:
    code = "import json; from penstock.config.unused import not_imported\nwith not_imported('json'): import json as j"
    subprocess.run([sys.executable, "-c", f"{code}\nassert j is json"], check=True, timeout=60)
