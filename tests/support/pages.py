"""What a page of the documentation shows, carried out: the commands of a block, and what they print."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```\n(\$ .*?)^```$", re.MULTILINE | re.DOTALL)
# What differs from run to run.
PASSING = {
    re.compile(r"\b[0-9a-f]{32}\b"): "<id>",
    re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z"): "<time>",
}


class Shown(NamedTuple):
    """Lines, without those of commands: as on the page, and as they were printed."""

    page: list[str]
    printed: list[str]


async def carry_out(page: str, containing: str, url: str) -> Shown:
    """Run the one block of the page that contains this text against the service at `url`."""
    (block,) = [block for block in BLOCK.findall((DOCS / page).read_text()) if containing in block]
    return await _carried_out(block.splitlines(), url)


async def carry_out_page(page: str, url: str, folder: Path) -> Shown:
    """Run all blocks of the page, one after the other, with their files in `folder`."""
    blocks = BLOCK.findall((DOCS / page).read_text())
    return await _carried_out([line for block in blocks for line in block.splitlines()], url, folder)


async def _carried_out(lines: list[str], url: str, folder: Path | None = None) -> Shown:
    script = "".join(f"{line[2:]}\necho\n" for line in lines if line.startswith("$ "))
    script = script.replace("localhost:8080", url.removeprefix("http://"))
    environ = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "SERVICE_URL": url, "no_proxy": "*"}
    command = ["bash", "-euo", "pipefail", "-c", script]
    ran = await asyncio.to_thread(
        subprocess.run, command, env=environ, cwd=folder, capture_output=True, text=True, check=True
    )
    shown = (line for line in lines if line and not line.startswith("$ "))
    return Shown([*map(_lasting, shown)], [_lasting(line) for line in ran.stdout.splitlines() if line])


def _lasting(line: str) -> str:
    for pattern, word in PASSING.items():
        line = pattern.sub(word, line)
    return line
