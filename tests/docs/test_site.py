"""docs/ as a site: `scripts/docs build` makes it, loads nothing from elsewhere, and refuses what leads nowhere."""

from __future__ import annotations

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support.service import clean_environ

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "srcset", "embed": "src", "object": "data"}
LOADED_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "modulepreload", "search"}
ELSEWHERE = re.compile(r"(?:https?:)?//", re.ASCII)
IN_STYLES = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")
CONTENTS = "# Contents\n\n## Start\n\n- [One](one.md)\n"


def build(target: Path, source: Path = DOCS) -> subprocess.CompletedProcess[str]:
    command = [ROOT / "scripts" / "docs", "build", target, source]
    return subprocess.run(command, cwd=ROOT, env=clean_environ(), capture_output=True, text=True, check=False)


class Loaded(HTMLParser):
    """Addresses that a browser asks for by itself to show a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "link" and LOADED_LINKS & set(found.get("rel", "").split()):
            self.addresses.append(found.get("href", ""))
        elif tag in LOADING:
            self.addresses.append(found.get(LOADING[tag], ""))


def loaded_from_elsewhere(site: Path) -> list[str]:
    pages = [address for path in site.rglob("*.html") for address in Loaded(path.read_text()).addresses]
    styles = [address for path in site.rglob("*.css") for address in IN_STYLES.findall(path.read_text())]
    return [address for address in pages if ELSEWHERE.match(address)] + styles


def test_the_site_has_every_page_in_a_room_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = build(tmp_path / "site")

    assert 0 == built.returncode, built.stderr
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    site = tmp_path / "site"
    assert pages <= {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    first = (site / "index.html").read_text()
    for room in ("Start", "Write", "Operate", "Reference", "Decisions"):
        assert f'<span class="caption-text">{room}</span>' in first
    assert (
        'href="https://github.com/penstock-workflows/penstock/tree/main/examples/deploy"'
        in (site / "operations.html").read_text()
    )
    assert len(Loaded(first).addresses) > 3
    assert [] == loaded_from_elsewhere(site)


@pytest.mark.parametrize(
    ("page", "lonely", "complaint"),
    [
        ("# One\n\n[two](two.md)\n", False, "two.md"),
        ("# One\n\n[below](#nowhere)\n", False, "nowhere"),
        ("# One\n\n[contents](index.md#nowhere)\n", False, "nowhere"),
        ("# One\n\n[outside](../../gone.py)\n", False, "gone.py"),
        ("# One\n", True, "lonely.md"),
    ],
)
def test_what_leads_nowhere_and_a_page_in_no_room_end_the_build(
    tmp_path: Path, page: str, lonely: bool, complaint: str
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(CONTENTS)
    (docs / "one.md").write_text(page)
    if lonely:
        (docs / "lonely.md").write_text("# Lonely\n")

    built = build(tmp_path / "site", docs)

    assert 0 != built.returncode
    assert complaint in built.stderr


def test_a_page_that_leads_somewhere_is_built(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(CONTENTS)
    (docs / "one.md").write_text("# One\n\n[below](#two), [contents](index.md#start)\n\n## Two\n")

    built = build(tmp_path / "site", docs)

    assert 0 == built.returncode, built.stderr


def test_what_is_loaded_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<script src="//cdn.example/x.js"></script><a href="https://example.com">x</a><img src="here.png">'
        '<link rel="stylesheet" href="https://fonts.example/a.css">'
    )
    (tmp_path / "a.css").write_text("@font-face { src: url('https://fonts.example/b.woff2') }")

    assert ["//cdn.example/x.js", "https://fonts.example/a.css", "https://fonts.example/b.woff2"] == sorted(
        loaded_from_elsewhere(tmp_path)
    )
