"""What is committed of the console's build: its packages are named with their licences, and it is small."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WEB, BUILT = ROOT / "http/console/web", ROOT / "http/console/built"
FIRST_PAGE_BYTES_MAX = 150 * 1024
REQUESTS_MAX = 12


def test_the_table_of_packages_is_that_of_the_lock_file() -> None:
    page = (ROOT / "docs/adr/0032-console.md").read_text()
    rows = re.findall(r"^\| (?:Inter \()?([@\w/-]+)\)? \| ([\d.]+) \| ([\w.-]+) \|", page, re.MULTILINE)
    locked = json.loads((WEB / "package-lock.json").read_text())["packages"]
    wanted = json.loads((WEB / "package.json").read_text())
    shipped = {*wanted["dependencies"], "@fontsource-variable/inter"}
    assert {
        (name, locked[f"node_modules/{name}"]["version"], locked[f"node_modules/{name}"]["license"]) for name in shipped
    } == set(rows)


def test_the_first_page_is_small() -> None:
    scripts = json.loads((BUILT / "manifest.json").read_text())["src/main.tsx"]
    files = [*scripts, "style.css", "inter.woff2"]
    size = sum(len(gzip.compress((BUILT / name).read_bytes(), 9)) for name in files)
    assert size < FIRST_PAGE_BYTES_MAX
    assert 1 + len(files) <= REQUESTS_MAX


def test_nothing_is_loaded_from_elsewhere() -> None:
    for path in BUILT.iterdir():
        if path.suffix in (".js", ".css"):
            addresses = set(re.findall(r"https?://[^\"'`\s)]+", path.read_text()))
            assert {one for one in addresses if "www.w3.org" not in one} == set(), path.name


def test_colours_are_named_in_one_place() -> None:
    """Everything else uses the tokens, so that both themes have all of them."""
    colour = re.compile(r"#[0-9a-fA-F]{3,8}\b(?!\s*\{)|\b(?:rgb|rgba|hsl|hsla|oklch)\(")
    named = {path.name: found for path in (WEB / "styles").glob("*.css") if (found := colour.findall(path.read_text()))}
    assert {"tokens.css"} == set(named), named
