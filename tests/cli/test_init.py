"""`penstock init`: a project that passes its own tests, and overwrites nothing."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.authoring.project_files import project_files
from tests.cli.conftest import Penstock


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "SERVICE_"))}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


@pytest.fixture
def project(penstock: Penstock, tmp_path: Path) -> Path:
    folder = tmp_path / "my shop" / "orders"
    assert 0 == penstock("init", str(folder)).code
    return folder


def test_a_new_project_passes_its_own_tests(project: Path) -> None:
    ran = python(project, "-m", "pytest")

    assert 0 == ran.returncode, ran.stdout + ran.stderr
    assert "3 passed" in ran.stdout


def test_its_tests_fail_when_its_code_is_wrong(project: Path) -> None:
    app = project / "app.py"
    app.write_text(app.read_text().replace("sum(order.prices)", "max(order.prices)"))

    assert 1 == python(project, "-m", "pytest").returncode


def test_its_workflow_gives_no_reason_to_warn(project: Path) -> None:
    ran = python(project, "-m", "penstock.cli.main", "workflow", "lint", "app:flow")

    assert (0, "0 findings\n") == (ran.returncode, ran.stdout)


def test_what_is_next_names_the_file_for_a_shell(penstock: Penstock, tmp_path: Path) -> None:
    folder = tmp_path / "my shop"

    *_, serve, call = penstock("init", str(folder)).out.splitlines()

    assert ["penstock", "dev", str(folder / "app.py")] == shlex.split(serve)
    assert ["penstock", "workflow", "call", "order", "--input"] == shlex.split(call)[:-1]
    assert call.strip() in (folder / "README.md").read_text()


def test_it_is_written_here_by_default(penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")

    assert 0 == penstock("init").code
    assert {*project_files("x"), "notes.txt"} == {path.name for path in tmp_path.iterdir()}
    assert f"# {tmp_path.name}\n" == (tmp_path / "README.md").read_text().splitlines(keepends=True)[0]


def test_a_folder_with_such_files_is_refused_with_their_names(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "app.py").mkdir()

    refused = penstock("init", str(tmp_path))

    assert 1 == refused.code
    assert f"{tmp_path} has app.py, README.md already; nothing was written" in refused.err
    assert ("mine", 2) == ((tmp_path / "README.md").read_text(), len(list(tmp_path.iterdir())))


def test_a_file_is_no_place_for_it(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    refused = penstock("init", str(tmp_path / "file"))

    assert 2 == refused.code
    assert "is a file" in refused.err
