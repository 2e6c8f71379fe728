"""Dependencies: the list of those that were looked at against what is installed, then each in a database of advisories.

What `scripts/audit` runs, in the virtualenv of penstock; `audit.py --link FOLDER` is for scripts/release --short.
pip-audit gets a virtualenv of its own, so that it changes nothing here; a mirror of PyPI without advisories makes it
say that all is well, so only what was really looked up counts.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Mapping, Sequence
from importlib.metadata import files, requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

LIST = Path(__file__).with_name("dependencies.toml")
TOOL = Path(sys.prefix) / "audit"
SERVICES = ("pypi", "osv")
TIMEOUT_S = 300


def installed(root: str = "penstock") -> dict[str, str]:
    """Versions of everything that `root` needs to run here, by normalized name; without its extras."""
    found: dict[str, str] = {}
    waiting = [root]
    while waiting:
        for needed in map(Requirement, requires(waiting.pop()) or []):
            name = re.sub(r"[-_.]+", "-", needed.name).lower()
            if name not in found and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
                found[name] = version(needed.name)
                waiting.append(needed.name)
    return found


def listed() -> dict[str, str]:
    """Versions that were looked at."""
    page = tomllib.loads(LIST.read_text())
    return {name: row["version"] for part in ("exposed", "inside") for name, row in page[part].items()}


def problems(here: Mapping[str, str], looked_at: Mapping[str, str]) -> list[str]:
    """What nobody has looked at: a dependency, or a version that is older than the one that was. Newer ones are
    fine."""
    unknown = [f"{name} {here[name]} is not in {LIST.name}" for name in here if name not in looked_at]
    older = [name for name in here if name in looked_at and Version(here[name]) < Version(looked_at[name])]
    return unknown + [f"{name} {here[name]} is older than {looked_at[name]}, which was looked at" for name in older]


def vulnerabilities(answer: Any) -> tuple[list[str], list[str]]:
    """Out of pip-audit's JSON: a line for each advisory, and the names that it could not look up."""
    rows = answer["dependencies"]
    skipped = [row["name"] for row in rows if "skip_reason" in row]
    found = [
        f"{row['name']} {row['version']}: {one['id']}, mended in {', '.join(one['fix_versions']) or 'no version yet'}"
        for row in rows
        for one in row.get("vulns", [])
    ]
    return found, skipped


def look_up(here: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """As `vulnerabilities`, from the service that knows most of them; without any, all are unknown."""
    best: tuple[list[str], list[str]] = [], list(here)
    with tempfile.TemporaryDirectory() as directory:
        pins = Path(directory) / "pins.txt"
        pins.write_text("".join(f"{name}=={version}\n" for name, version in here.items()))
        for service in SERVICES:
            best = min(best, _asked(service, pins) or best, key=lambda one: len(one[1]))
    return best


def _asked(service: str, pins: Path) -> tuple[list[str], list[str]] | None:
    command = [
        TOOL / "bin" / "pip-audit",
        "-s",
        service,
        "--no-deps",
        "--disable-pip",
        "-r",
        pins,
        "-f",
        "json",
        "--progress-spinner",
        "off",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        return vulnerabilities(json.loads(done.stdout))
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        return None


def _install_tool() -> bool:
    if (TOOL / "bin" / "pip-audit").exists():
        return True
    venv.create(TOOL, with_pip=True)
    command = [TOOL / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pip-audit"]
    return subprocess.run(command, check=False).returncode == 0


def link(folder: Path) -> None:
    """Have the folder hold links to what penstock needs to run, as it is installed here."""
    for name in installed():
        for path in files(name) or []:
            top = path.parts[0]
            if top not in ("..", "__pycache__") and not (folder / top).exists():
                (folder / top).symlink_to(Path(str(path.locate())).parents[len(path.parts) - 1] / top)


def _say(title: str, lines: Sequence[str]) -> None:
    for line in lines:
        print(f"{title}: {line}")


def main() -> int:
    here, looked_at = installed(), listed()
    wrong = problems(here, looked_at)
    newer = [
        f"{name} {here[name]}, {looked_at[name]} was looked at"
        for name in here
        if looked_at.get(name, here[name]) != here[name]
    ]
    found, unknown = look_up(here) if _install_tool() else ([], list(here))
    _say("NOT LISTED", wrong)
    _say("newer", [line for line in newer if line.split(",")[0] not in " ".join(wrong)])
    _say("VULNERABLE", found)
    if unknown:
        print(f"NOT LOOKED UP: no advisories could be had for {len(unknown)} of {len(here)}: {' '.join(unknown)}")
    print(
        f"{len(here)} dependencies, {len(here) - len(unknown)} looked up, "
        f"{len(found)} advisories, {len(wrong)} not as listed"
    )
    return 1 if found or wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--link"]:
        link(Path(sys.argv[2]))
    else:
        sys.exit(main())
