"""How Sphinx makes a site of docs/: `scripts/docs` starts it, docs/adr/0035-docs-site.md says why so.

The pages are plain Markdown, which GitHub shows as it is. Two things are added while they are read. A contents page
(index.md of docs/, README.md of a folder below) gives the navigation: each heading is a room, and the pages of the
folder that are linked below it are in this room. A link to a file outside of docs/ leads to the repository.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

REPOSITORY = Path(__file__).resolve().parents[2]
REPOSITORY_URL = "https://github.com/penstock-workflows/penstock"
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)((?:#[^)\s]*)?)\)")
ROOM = re.compile(r"^## (.+)$", re.MULTILINE)
CONTENTS = ("index", "README")

project = "penstock"
html_title = "penstock"
extensions = ["myst_parser"]
root_doc = "index"
source_suffix = {".md": "markdown"}
myst_heading_anchors = 6
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]  # examples in JSON leave parts out: "…"

html_theme = "furo"
html_theme_options = {"source_repository": f"{REPOSITORY_URL}/", "source_branch": "main", "source_directory": "docs/"}
html_copy_source = False
html_last_updated_fmt = None


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _read)


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    path = Path(app.srcdir, page).with_suffix(".md")
    text = LINK.sub(lambda link: _link(link, path.parent, Path(app.srcdir)), source[0])
    source[0] = text + (_rooms(source[0], path.parent) if path.stem in CONTENTS else "")


def _link(link: re.Match[str], folder: Path, docs: Path) -> str:
    target = Path(os.path.normpath(folder / link[1]))
    if target.is_relative_to(docs) or not target.exists():
        return link[0]
    kind = "tree" if target.is_dir() else "blob"
    return f"]({REPOSITORY_URL}/{kind}/main/{target.relative_to(REPOSITORY).as_posix()}{link[2]})"


def _rooms(text: str, folder: Path) -> str:
    """Tables of contents that only the navigation shows, one for each heading with links."""
    placed: set[str] = set()
    rooms = []
    start, *headed = ROOM.split(text)
    for name, part in (("", start), *zip(headed[::2], headed[1::2], strict=True)):
        pages = [page for page in dict.fromkeys(link[0] for link in LINK.findall(part)) if _is_below(page, folder)]
        if new := [page for page in pages if page not in placed]:
            rooms.append("\n".join(["```{toctree}", ":hidden:", f":caption: {name}" if name else "", "", *new, "```"]))
        placed.update(new)
    return "\n\n" + "\n\n".join(rooms)


def _is_below(page: str, folder: Path) -> bool:
    """Whether it is a page of this folder, or the contents page of a folder in it."""
    place, _, name = page.rpartition("/")
    if not place:
        return name.endswith(".md")
    return name == "README.md" and ".." not in place and (folder / page).is_file()
