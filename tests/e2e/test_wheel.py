"""penstock out of a wheel, away from any checkout: it has all that it needs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.service import Service, clean_environ
from tests.support.wheel import build_wheel, install


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a virtualenv in which the wheel is installed."""
    directory = tmp_path_factory.mktemp("wheel")
    return install(build_wheel(directory), directory)


def test_serve_and_demo_started_together_work_out_of_a_wheel(programs: Path, tmp_path: Path) -> None:
    service = Service(tmp_path, penstock=(str(programs / "penstock"),), shards=1, http_workers=1)
    service.launch()
    try:
        ran = subprocess.run(
            [programs / "penstock", "demo", "--json"],
            cwd=tmp_path,
            env=service.environ,
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        service.stop()

    assert 0 == ran.returncode, ran.stderr
    assert f"waiting for the service at {service.url}" in ran.stderr
    result = json.loads(ran.stdout)
    assert result["output"] == result["expected"]
    assert result["output"]["documents"] > 100


def test_nothing_of_the_checkout_is_needed(programs: Path, tmp_path: Path) -> None:
    imports = "import penstock.cli.commands.demo as demo, penstock.http.app as app"
    code = f"{imports}; print(demo.__file__, app.__file__, list(demo._source(None)))"
    found = subprocess.run(
        [programs / "python", "-c", code], cwd=tmp_path, env=clean_environ(), capture_output=True, text=True, check=True
    )
    assert found.stdout.count(str(programs.parent)) == 3
