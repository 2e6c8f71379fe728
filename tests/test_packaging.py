"""What is published: the wheel has every package and nothing else, the source distribution is the checkout, and its page's links work."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("package", "engine", "broker", "actors", "http", "worker", "cli", "config", "demo")
SHIPPED = (*PACKAGES, "docs", "examples", "scripts", "tests", ".ci")
PAGES = "https://github.com/penstock-workflows/penstock/blob/main/"
HEAVY = ("rich", "jsonschema_rs", "structlog", "falcon", "gunicorn", "httpx2", "uvloop")


def metadata() -> configparser.SectionProxy:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return setup["metadata"]


def sources() -> set[str]:
    """Every file of the checkout that is somebody's work, by its path."""
    loose = {path.name for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".git")}
    found = (path for folder in SHIPPED for path in (ROOT / folder).rglob("*") if path.is_file())
    return loose | {str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts and path.suffix != ".pyc"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution, built from a copy."""
    copy, dist = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("dist")
    for name in sources():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    code = f"from setuptools import build_meta as b; b.build_sdist({str(dist)!r}); b.build_wheel({str(dist)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, capture_output=True)
    return dist


def test_the_wheel_has_every_package_with_its_types_and_nothing_else(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]

    assert all(name.startswith("penstock/") for name in names)
    here = {name.replace("penstock/", "", 1) for name in names if name.count("/") > 1}
    modules = {str(path.relative_to(ROOT)) for folder in PACKAGES[1:] for path in (ROOT / folder).rglob("*.py")}
    assert modules == {name for name in here if name.endswith(".py")}
    assert {"penstock/__init__.py", "penstock/py.typed", *(f"penstock/{folder}/py.typed" for folder in PACKAGES[1:])} <= set(names)


def test_the_source_distribution_is_the_whole_checkout(built: Path) -> None:
    [archive] = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {member.name.partition("/")[2] for member in opened if member.isfile()}

    generated = {name for name in names if name.startswith("penstock.egg-info/")} | {"PKG-INFO"}
    assert sources() == names - generated


def test_what_is_published_says_who_and_where(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        [name] = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        head = opened.read(name).decode().partition("\n\n")[0]

    for field in (
        "Author: ",
        "Keywords: ",
        "Project-URL: Documentation, https://",
        "Project-URL: Issues, https://",
        "Requires-Python: >=3.11",
    ):
        assert f"\n{field}" in head, field


def test_the_version_is_that_of_the_distribution() -> None:
    assert metadata()["version"] == penstock.__version__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        penstock.nothing  # noqa: B018


def test_the_readmes_links_work_on_a_page_elsewhere_and_lead_to_files_that_exist() -> None:
    text = (ROOT / "README.md").read_text()

    assert [] == re.findall(r"\]\((?!https://)[^)]*\)", text)
    targets = dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", text, re.MULTILINE))
    used = set(re.findall(r"(?<![\]\w`])\[([^\]\[\"]+)\](?![(:])", re.sub(r"```.*?```", "", text, flags=re.DOTALL)))
    assert targets.keys() == used
    missing = [target for target in targets.values() if not (ROOT / target.removeprefix(PAGES).partition("#")[0]).exists()]
    assert [] == missing
    assert all(target.startswith(PAGES) for target in targets.values())


def test_a_worker_imports_nothing_that_only_others_need() -> None:
    code = f"import sys, penstock.worker; print(*(set({HEAVY!r}) & sys.modules.keys()))"

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert [] == ran.stdout.split()
