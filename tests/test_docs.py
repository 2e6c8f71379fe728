"""What the documentation shows is true: definitions that it prints can be registered, pages that it links exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from penstock.engine.validation import problems

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DEFINITION = re.compile(r"```json\n(\{.*?\n\})\n```", re.DOTALL)
PRODUCT = (
    *("engine", "broker", "actors", "http", "client", "authoring", "worker", "cli", "config", "telemetry", "demo"),
    "testing",
    "package",
)
FOLDERS = (*PRODUCT, "scripts", "tests", "examples")
NAMED_FILE = re.compile(r"(?<![\w/*-])(?:\.\./)?((?:[\w-]+/)*\w+\.py)\b")
# What readers write, and what must not be.
OF_READERS = {"app.py", "shop/app.py", "test_app.py", "greeter.py", "order.py", "hello.py", "shop.py", "test_shop.py"}
NO_FILES_OF_OURS = OF_READERS | {"http/__init__.py"}
WIDTH = 120
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def shown_definitions() -> list[tuple[str, str]]:
    return [
        (page.name, body)
        for page in PAGES
        for body in DEFINITION.findall(page.read_text())
        if '"steps": [' in body and '"name"' in body
    ]


def test_there_are_definitions_to_check() -> None:
    assert len(shown_definitions()) >= 4


@pytest.mark.parametrize(("page", "body"), shown_definitions())
def test_a_definition_in_the_docs_can_be_registered(page: str, body: str) -> None:
    assert problems(orjson.loads(body)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []


def prose(text: str) -> Iterator[str]:
    """The lines of a page, but for code, tables, and lines that an address makes long."""
    code = False
    for line in text.splitlines():
        code ^= line.lstrip().startswith("```")
        if not code and not line.startswith(("|", "    ")) and "://" not in line:
            yield line


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_a_line_of_prose_has_at_most_120_characters(page: Path) -> None:
    assert [line for line in prose(page.read_text()) if len(line) > WIDTH] == []


def source_files() -> list[str]:
    return [path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]


SOURCES = source_files()


def docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def named_files(text: str) -> set[str]:
    return set(NAMED_FILE.findall(text)) - NO_FILES_OF_OURS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    missing = {
        name for name in named_files(page.read_text()) if not any(f"/{path}".endswith(f"/{name}") for path in SOURCES)
    }

    assert missing == set()


@pytest.mark.parametrize("source", [path for path in SOURCES if path.split("/")[0] in PRODUCT])
def test_every_file_that_a_docstring_names_exists(source: str) -> None:
    """A bare name is that of a file in the same folder, below it or above it; any other is given with its folder."""
    folder = source.rpartition("/")[0] + "/"
    above = {f"{parent.as_posix()}/" for parent in Path(source).parents}
    named = {name for text in docstrings((ROOT / source).read_text()) for name in named_files(text)}
    near = [path for path in SOURCES if path.startswith(folder) or path.rpartition("/")[0] + "/" in above]

    missing = {
        name
        for name in named
        if not any(f"/{path}".endswith(f"/{name}") for path in (SOURCES if "/" in name else near))
    }

    assert missing == set()


def test_a_file_that_does_not_exist_is_noticed() -> None:
    assert named_files("see gone.py, `a/b/gone_too.py` and ../engine/errors.py") == {
        "gone.py",
        "a/b/gone_too.py",
        "engine/errors.py",
    }


WALK = re.compile(r"## From POST /runs to workflow.completed\n(.*?)\n## ", re.DOTALL)


def rooms_of_the_walk() -> list[str]:
    """The rooms that CONTRIBUTING.md leads through, in its order; a file beside rooms is a room of its own."""
    (walk,) = WALK.findall((ROOT / "CONTRIBUTING.md").read_text())
    files = [name for name in re.findall(r"`([\w/]+\.py)`", walk) if "/" in name]
    rooms = [name.rpartition("/")[0] if name.count("/") > 1 else name.removesuffix(".py") for name in files]
    return [room for place, room in enumerate(rooms) if place == 0 or rooms[place - 1] != room]


def imported_by(room: str) -> set[str]:
    """What the modules of a room import, as paths: `penstock.engine.errors` is `engine/errors`."""
    sources = [*(ROOT / room).glob("*.py"), *ROOT.glob(f"{room}.py")]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source.read_text()))]
    names = [name for node in nodes if isinstance(node, ast.ImportFrom) and node.module for name in _names(node)]
    return {name.removeprefix("penstock.").replace(".", "/") for name in names if name.startswith("penstock.")}


def _names(node: ast.ImportFrom) -> list[str]:
    return [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]


def test_the_walk_goes_through_each_room_once() -> None:
    rooms = rooms_of_the_walk()

    assert len(rooms) >= 12
    assert len(set(rooms)) == len(rooms)
    assert {room.split("/")[0] for room in rooms} >= {"http", "actors", "worker", "broker", "engine"}


def test_the_walk_goes_only_downwards() -> None:
    rooms = rooms_of_the_walk()

    upwards = [
        (room, above)
        for place, room in enumerate(rooms)
        for above in rooms[:place]
        if any(f"{name}/".startswith(f"{above}/") for name in imported_by(room))
    ]

    assert upwards == []
