"""What is published: the files, no dependencies, types that are those of the service's document."""

from __future__ import annotations

import json
from pathlib import Path

from penstock import __version__
from penstock.http.openapi import document
from tests.support.tools import NODE
from tests.typescript.conftest import MODULES, PACKAGE, ROOT, Packed, checked


def test_generated_types_are_those_of_the_services_document(tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_bytes(document.to_json())
    generator = MODULES / "openapi-typescript" / "bin" / "cli.js"
    checked(NODE, generator, tmp_path / "openapi.json", "-o", tmp_path / "api.ts", cwd=tmp_path)

    assert (PACKAGE / "src" / "api.ts").read_text() == (tmp_path / "api.ts").read_text(), (
        "run  scripts/typescript generate"
    )


def test_package_has_code_types_licence_and_readme_and_nothing_else(packed: Packed) -> None:
    files = {entry["path"] for entry in packed.said["files"]}
    sources = {f"src/{path.name}" for path in (PACKAGE / "src").iterdir()}
    built = {f"dist/{Path(one).stem}{suffix}" for one in sources for suffix in (".js", ".js.map", ".d.ts")}

    assert {"package.json", "README.md", "LICENSE"} | sources | built == files


def test_package_says_what_it_is(packed: Packed) -> None:
    described = json.loads((packed.project / "node_modules" / "penstock" / "package.json").read_text())

    assert ("penstock", __version__, "module") == (described["name"], described["version"], described["type"])
    assert "Apache-2.0" == described["license"]
    assert "dependencies" not in described
    assert (ROOT / "LICENSE").read_text() == (PACKAGE / "LICENSE").read_text()


def test_lock_file_names_versions_and_no_registry() -> None:
    locked = json.loads((PACKAGE / "package-lock.json").read_text())["packages"]

    assert [] == [name for name, entry in locked.items() if "resolved" in entry]
    assert all("integrity" in entry for name, entry in locked.items() if name)
    exact = json.loads((PACKAGE / "package.json").read_text())["devDependencies"]
    assert exact == {name: locked[f"node_modules/{name}"]["version"] for name in exact}
