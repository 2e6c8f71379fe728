"""The shape of the checkout: folders, packages, maps, and what the pages say about them."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "engine",
    "broker",
    "actors",
    "http",
    "client",
    "authoring",
    "worker",
    "cli",
    "config",
    "telemetry",
    "demo",
    "testing",
)
PACKAGES = {"penstock": "package", **{f"penstock.{folder}": folder for folder in FOLDERS}}
ROOMS = sorted(
    path.parent.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).glob("*/**/*.py")
)
ROOMS = list(dict.fromkeys(ROOMS))
MODULES_MAX = 14
SAME_NAME = {"Workflow"}  # what users write in Python (authoring/), and what the engine makes of its definition
MAP_LINES_MAX = 20
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
HOME_PATH = re.compile(r"(?<![\w.}-])/(?:root|home|work|Users)/", re.ASCII)
TEXT_SUFFIXES = frozenset({".py", ".ts", ".md", ".cfg", ".toml", ".sh", ".json", ""})


def test_http_has_no_init() -> None:
    assert not (ROOT / "http" / "__init__.py").exists()


def test_the_standard_librarys_http_wins_in_the_checkout() -> None:
    code = "import http.client, penstock.client.client; print(http.client.__file__, penstock.client.client.__file__)"

    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    standard, ours = ran.stdout.split()
    assert not Path(standard).is_relative_to(ROOT)
    assert standard != ours


def test_what_names_its_interpreter_can_be_executed_and_nothing_else() -> None:
    files = [path for folder in ("scripts", "examples", ".ci") for path in (ROOT / folder).rglob("*") if path.is_file()]
    named = {path for path in files if path.read_bytes().startswith(b"#!")}

    assert named == {path for path in files if path.stat().st_mode & 0o111}


def test_setup_lists_every_package() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")

    lines = setup["options"]["package_dir"].strip().splitlines()
    packages = setup["options"]["packages"].split()

    assert [f"{name} = {folder}" for name, folder in PACKAGES.items()] == lines
    assert sorted([*PACKAGES, *(f"penstock.{room.replace('/', '.')}" for room in ROOMS)]) == sorted(packages)


def test_every_package_of_the_checkout_is_known() -> None:
    """A folder with code that is installed under no name is forgotten by lint, types and wheel."""
    found = {path.parent.name for path in ROOT.glob("*/*.py")}

    assert set(PACKAGES.values()) == found - {"tests", "scripts", "examples", ".venv", "build"}


@pytest.mark.parametrize("folder", PACKAGES.values())
def test_a_package_is_typed_and_opens_with_its_map(folder: str) -> None:
    opening = ROOT / folder / ("app.py" if folder == "http" else "__init__.py")

    text = ast.get_docstring(ast.parse(opening.read_text()))

    assert (ROOT / folder / "py.typed").exists()
    assert text is not None
    assert "Not here" in text
    assert "Start reading at" in " ".join(text.split())
    assert len(text.splitlines()) <= MAP_LINES_MAX


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_opens_with_its_map(room: str) -> None:
    text = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text()))

    assert text is not None
    assert "Not here" in text
    assert "Start reading at" in " ".join(text.split())
    assert len(text.splitlines()) <= MAP_LINES_MAX


@pytest.mark.parametrize("folder", [*FOLDERS, *ROOMS])
def test_a_folder_is_about_one_thing(folder: str) -> None:
    modules = [path.name for path in (ROOT / folder).glob("*.py") if path.name != "__init__.py"]

    assert len(modules) <= MODULES_MAX, modules


def test_no_two_classes_share_a_name() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    found = Counter(
        node.name for path in files for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
    )

    assert [] == [name for name, count in found.items() if count > 1 and name not in SAME_NAME]


@pytest.mark.parametrize("page", PAGES)
def test_a_pages_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)", path.read_text())

    missing = [link for link in links if not (path.parent / link).exists()]

    assert missing == []


def test_no_file_names_a_path_of_the_machine_where_it_was_written() -> None:
    folders = (*PACKAGES.values(), "clients", "tests", "scripts", "examples", "docs", ".ci")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")] + [
        path for path in ROOT.iterdir() if path.name != ".git"
    ]
    texts = [path for path in files if path.is_file() and path.suffix in TEXT_SUFFIXES]

    naming = [path.relative_to(ROOT).as_posix() for path in texts if HOME_PATH.search(path.read_text(errors="replace"))]

    assert naming == []
