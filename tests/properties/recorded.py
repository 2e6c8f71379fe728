"""Recorded histories: a definition, the records of a run's log, and the snapshot that they folded to when they were
recorded.

They stand in a folder for each version; that of the version which setup.cfg names takes new ones until it is released.

    python -m tests.properties.recorded FILE…             adds the snapshot to files that have none yet, and changes
    none that is there
    python -m tests.properties.recorded --release VERSION  completes a version's folder, and seals it: nothing in it
    changes any more
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
import orjson
from msgspec import Raw, Struct

from penstock.engine.run.advance import fold
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.events import Record, decode
from penstock.engine.run.state import Run, to_snapshot
from penstock.engine.validation import parse

FOLDER = Path(__file__).parent / "golden"
DOCUMENTS = "documents.json"
SEAL = "SEAL"
RELEASED = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", re.MULTILINE)


class Stored(Struct, frozen=True):
    """A record with its event as it came over the wire."""

    seq: int
    at: float
    event: Raw


class History(Struct, frozen=True, omit_defaults=True):
    """One file. `about` says what is special; all events name one run."""

    about: str
    definition: dict[str, object]
    records: list[Stored]
    snapshot: dict[str, object] | None = None


class Sealed(Exception):
    """The version has been released."""


def histories(folder: Path = FOLDER) -> list[Path]:
    """Every recorded history of every version."""
    return sorted(path for path in folder.glob("*/*.json") if path.name != DOCUMENTS)


def read(path: Path) -> History:
    return msgspec.json.decode(path.read_bytes(), type=History)


def folded(history: History, first: int | None = None) -> Run | None:
    """The state after the first so many records (None: all)."""
    workflow = compile_workflow(parse(history.definition), "golden")
    return fold(
        workflow,
        None,
        (Record(stored.seq, stored.at, decode(bytes(stored.event))) for stored in history.records[:first]),
    )


def snapshot(history: History) -> dict[str, object]:
    run = folded(history)
    assert run is not None, "the records start no run"
    found: dict[str, object] = orjson.loads(to_snapshot(run))
    return found


def record(path: Path) -> bool:
    """Add the snapshot to a file without one; False if it has one. Raises Sealed in the folder of a released
    version."""
    if (path.parent / SEAL).exists():
        raise Sealed(f"version {path.parent.name} is released: record it in the folder of the next one")
    history = read(path)
    if history.snapshot is not None:
        return False
    path.write_bytes(written(_again(history)))
    return True


def release(version: str, folder: Path = FOLDER) -> None:
    """Have the version's folder hold each history that the one before it has, with the snapshot that this code writes,
    and seal it.

    Raises Sealed when that was done before.
    """
    here = folder / version
    if (here / SEAL).exists():
        raise Sealed(f"version {version} is released, and stays as it is")
    here.mkdir(exist_ok=True)
    for path in _former(version, folder):
        if not (here / path.name).exists():
            (here / path.name).write_bytes(path.read_bytes() if path.name == DOCUMENTS else written(_again(read(path))))
    (here / SEAL).write_text(seal(here) + "\n")


def seal(folder: Path) -> str:
    """A text that changes when anything in the folder does."""
    found = sha256()
    for path in sorted(folder.glob("*.json")):
        found.update(f"{path.name} {sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def released(changelog: str) -> list[str]:
    """The versions that have a date."""
    return RELEASED.findall(changelog)


def written(history: History) -> bytes:
    """As it stands in the file: one record to a line."""
    parts = [f'"about":{_line(history.about)}', f'"definition":{_line(history.definition)}']
    records = ",\n".join(f" {_line(stored)}" for stored in history.records)
    return (
        "{" + ",\n".join([*parts, f'"records":[\n{records}\n]', f'"snapshot":{_line(history.snapshot)}']) + "}\n"
    ).encode()


def _again(history: History) -> History:
    """As it would be recorded now."""
    return msgspec.structs.replace(history, snapshot=snapshot(history))


def _former(version: str, folder: Path) -> list[Path]:
    """What the newest of the earlier versions has."""
    earlier = [path for path in folder.iterdir() if path.is_dir() and _number(path.name) < _number(version)]
    return sorted(max(earlier, key=lambda path: _number(path.name)).glob("*.json")) if earlier else []


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _line(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _told(arguments: list[str]) -> Iterator[str]:
    if arguments[:1] == ["--release"]:
        for version in arguments[1:]:
            release(version)
            yield f"{version} sealed"
    else:
        for name in arguments:
            yield f"{name} {'recorded' if record(Path(name)) else 'has a snapshot, left as it is'}"


if __name__ == "__main__":
    for line in _told(sys.argv[1:]):
        print(line)
