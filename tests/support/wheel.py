"""penstock as users install it: a wheel out of the checkout's sources, in a virtualenv that knows nothing of the
checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(
    ".*", "__pycache__", "build", "dist", "*.egg-info", "penstock-data", "bench-results", "tests"
)
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def build_wheel(directory: Path) -> Path:
    """The wheel of a copy of the checkout: a build leaves its traces beside the sources."""
    copy, wheels = directory / "sources", directory / "wheels"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
    subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(copy)], check=True)
    (wheel,) = wheels.glob("penstock-*.whl")
    return wheel


def install(wheel: Path, directory: Path) -> Path:
    """A new virtualenv with the wheel in it; returns its folder of programs.

    What penstock depends on is that of this virtualenv, by links, so that nothing is downloaded again. penstock itself
    is not among them.
    """
    venv = directory / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    subprocess.run([*PIP, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{dependencies(directory)}\n")
    (venv / "bin" / "nats-server").symlink_to(Path(sys.prefix) / "bin" / "nats-server")
    return venv / "bin"


def dependencies(directory: Path) -> Path:
    """A folder, below this one, with links to all packages of this virtualenv but penstock."""
    links = directory / "dependencies"
    links.mkdir()
    (ours,) = Path(sys.prefix).glob("lib/python*/site-packages")
    for entry in ours.iterdir():
        if entry.suffix != ".pth" and not entry.name.startswith(("penstock", "__editable__")):
            (links / entry.name).symlink_to(entry)
    return links
