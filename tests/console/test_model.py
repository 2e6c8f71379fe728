"""What the console computes in the browser, tested in Node: model.test.ts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.tools import NODE, VENV

HERE = Path(__file__).parent
TOOLS = VENV / "console" / "node_modules"
GOLDEN = HERE.parent / "properties" / "golden"


def recordings() -> dict[str, list[dict[str, Any]]]:
    """The events of every recorded history, with their sequences."""
    read = {f"{path.parent.name}/{path.stem}": json.loads(path.read_text()) for path in GOLDEN.glob("*/*.json")}
    return {
        name: [{**one["event"], "seq": one["seq"]} for one in recording["records"]]
        for name, recording in read.items()
        if "records" in recording
    }


def test_model(tmp_path: Path) -> None:
    if not TOOLS.exists():
        pytest.skip("needs the tools of the console: scripts/console build")
    (tmp_path / "recordings.json").write_text(json.dumps(recordings()))
    bundle = tmp_path / "model.test.mjs"
    subprocess.run(
        [
            NODE,
            str(TOOLS / "esbuild/bin/esbuild"),
            str(HERE / "model.test.ts"),
            "--bundle",
            "--platform=node",
            "--format=esm",
            "--jsx=automatic",
            "--jsx-import-source=preact",
            f"--outfile={bundle}",
            "--log-level=error",
            "--banner:js=globalThis.localStorage ??= { getItem: () => null, setItem: () => undefined };",
        ],
        check=True,
    )
    done = subprocess.run(
        [NODE, "--test", "--test-reporter=spec", str(bundle)],
        env={**os.environ, "RECORDINGS": str(tmp_path / "recordings.json")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
