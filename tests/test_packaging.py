"""What is published: the wheel has every package and nothing else, the source distribution is the checkout, and its
page's links work."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import penstock
from penstock import worker

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "package",
    *("engine", "broker", "actors", "http", "client", "authoring", "worker", "cli", "config", "telemetry", "demo"),
    "testing",
)
SHIPPED = (*PACKAGES, "docs", "examples", "scripts", "tests", ".ci")
PAGES = "https://github.com/penstock-workflows/penstock/blob/main/"
PURELIB = sysconfig.get_path("purelib")
PROGRAM = """
from __future__ import annotations

from dataclasses import dataclass

from penstock import AsyncClient, Client, Workflow
from penstock.client import NotFoundError, RunFailedError, ToCancel


@dataclass
class Receipt:
    total: float


flow = Workflow("order")


def blocking() -> str | None:
    with Client("http://localhost:8080", retries=5) as client:
        run = client.run(flow, {"id": 1}, register=True)
        receipt: Receipt = run.result(timeout=30, type=Receipt)
        wrong: int = run.result(type=Receipt)  # wrong
        try:
            total: int = client.bulk("order", [b"1"]).total
            client.cancel_all(ToCancel(workflow_id="order"))
            names: list[str] = [one.run_id for one in client.runs(limit=3)]
            names = [event.type for event in run.events()]
            client.start(7)  # wrong
            client.no_such_method()  # wrong
        except NotFoundError as error:
            status: int | None = error.status
            return error.code or error.offender
        except RunFailedError as error:
            return error.run_id + error.status
        return names[total] + str(receipt.total + wrong)


async def asynchronous() -> list[str]:
    async with AsyncClient("http://localhost:8080", token="t") as client:
        receipt: Receipt = await client.run(flow).result(timeout=1.5, type=Receipt)
        run = await client.run("order", receipt)
        found: str = run.run_id
        unawaited: str = client.get_run(found).status  # wrong
        kinds: list[str] = [event.type async for event in run.events()]
        return [*kinds, found, unawaited, (await client.get_run(found)).status]
"""
HEAVY = ("rich", "jsonschema_rs", "structlog", "falcon", "gunicorn", "httpx2", "uvloop", "nats")


def metadata() -> configparser.SectionProxy:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return setup["metadata"]


def sources() -> set[str]:
    """Every file of the checkout that is somebody's work, by its path."""
    loose = {path.name for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".git")}
    found = (path for folder in SHIPPED for path in (ROOT / folder).rglob("*") if path.is_file())
    return loose | {
        str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


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
    assert {"http/openapi/reference.html", "http/openapi/reference.css", "http/console/page.html"} <= here
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "http/console/built").iterdir()}
    assert "http/console/built/app.js" in pages
    definitions = {str(path.relative_to(ROOT)) for path in (ROOT / "demo").rglob("*.json")}
    assert definitions == {name for name in here if name.startswith("demo/") and name.endswith(".json")}
    assert pages == {name for name in here if name.startswith("http/console/") and name.count("/") > 2}
    assert {
        "penstock/__init__.py",
        "penstock/py.typed",
        *(f"penstock/{folder}/py.typed" for folder in PACKAGES[1:]),
    } <= set(names)


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
    missing = [
        target for target in targets.values() if not (ROOT / target.removeprefix(PAGES).partition("#")[0]).exists()
    ]
    assert [] == missing
    assert all(target.startswith(PAGES) for target in targets.values())


def test_a_worker_imports_nothing_that_only_others_need() -> None:
    code = f"import sys, penstock.worker; print(*(set({HEAVY!r}) & sys.modules.keys()))"

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert [] == ran.stdout.split()


def test_pyright_knows_the_type_of_everything_that_a_worker_uses(built: Path, tmp_path: Path) -> None:
    """From the wheel, as in the project of somebody who has installed it."""
    [wheel] = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    pyright = Path(sys.executable).with_name("pyright")
    paths = os.pathsep.join((str(tmp_path), sysconfig.get_path("purelib")))
    ran = subprocess.run(
        [pyright, "--pythonpath", sys.executable, "--verifytypes", "penstock.worker", "--outputjson"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(ran.stdout[ran.stdout.index("{") :])["typeCompleteness"]

    assert f"{tmp_path}/penstock/worker/py.typed" == found["pyTypedPath"]
    public = [
        one
        for one in found["symbols"]
        if one["name"].startswith("penstock.worker.") and one["name"].split(".")[2] in worker.__all__
    ]
    assert {f"penstock.worker.{name}" for name in worker.__all__} <= {one["name"] for one in public}
    kinds = {getattr(worker, name).__module__ + "." + name for name in worker.__all__}
    theirs = [one for one in found["symbols"] if one["name"].startswith(tuple(kinds))]
    assert [] == [
        one["name"] for one in (*public, *theirs) if not one["isTypeKnown"] and not one["name"].endswith("__init__")
    ]


def test_a_program_with_the_client_passes_the_type_checkers_from_the_wheel(built: Path, tmp_path: Path) -> None:
    """mypy --strict and pyright find what is wrong in it, and nothing else."""
    [wheel] = built.glob("*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    environ = {**os.environ, "MYPYPATH": str(site), "PYTHONPATH": os.pathsep.join((str(site), PURELIB))}

    options = ["--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", "--no-error-summary"]
    mypy = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(program)],
        **(how := {"cwd": tmp_path, "env": environ, "capture_output": True, "text": True}),
        check=False,
    )
    pyright = subprocess.run(
        [Path(sys.executable).with_name("pyright"), "--pythonpath", sys.executable, "--outputjson", str(program)],
        **how,
        check=False,
    )

    by_mypy = {int(line.split(":")[1]) for line in mypy.stdout.splitlines() if ": error: " in line}
    assert wrong == by_mypy, mypy.stdout + mypy.stderr
    found = json.loads(pyright.stdout[pyright.stdout.index("{") :])["generalDiagnostics"]
    by_pyright = {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}
    assert wrong == by_pyright, found
