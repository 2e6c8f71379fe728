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
from configparser import ConfigParser
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from penstock.engine.run.advance import advance
from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.events import Record, decode
from penstock.engine.run.state import Run, to_snapshot
from penstock.engine.validation import parse

FOLDER = Path(__file__).parent / "golden"
DOCUMENTS = "documents.json"
SEAL = "SEAL"
MISSING = Raw()
STATE_CHARS = 16
RELEASED = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", re.MULTILINE)


class Stored(Struct, frozen=True, omit_defaults=True):
    """A record with its event as it came over the wire.

    `then` has the statuses that it has brought about: of the run under `run`, of steps and elements by their ids.
    `state` is the SHA-256 of the snapshot after it, as far as it is needed; empty where no run exists.
    """

    seq: int
    at: float
    event: Raw
    then: dict[str, str] = {}
    state: str = ""


class History(Struct, frozen=True, omit_defaults=True):
    """One file. `about` says what is special; all events name one run."""

    about: str
    definition: dict[str, object]
    records: list[Stored]
    snapshot: Raw = MISSING


class Sealed(Exception):
    """The version has been released."""


def current() -> str:
    """The version that is worked on."""
    setup = ConfigParser()
    setup.read(Path(__file__).parents[2] / "setup.cfg")
    return setup["metadata"]["version"]


def histories(folder: Path = FOLDER) -> list[Path]:
    """Every recorded history of every version."""
    return sorted(path for path in folder.glob("*/*.json") if path.name != DOCUMENTS)


def read(path: Path) -> History:
    return msgspec.json.decode(path.read_bytes(), type=History)


def states(history: History) -> Iterator[Run | None]:
    """The state after each record."""
    workflow = compile_workflow(parse(history.definition), "golden")
    run: Run | None = None
    for stored in history.records:
        run, _ = advance(workflow, run, Record(stored.seq, stored.at, decode(bytes(stored.event))))
        yield run


def folded(history: History) -> Run | None:
    """The state after all records."""
    return list(states(history))[-1]


def snapshot(history: History) -> bytes:
    run = folded(history)
    assert run is not None, "the records start no run"
    return to_snapshot(run)


def followed(history: History) -> list[Stored]:
    """The records with what each of them has brought about."""
    found, before = list[Stored](), dict[str, str]()
    for stored, run in zip(history.records, states(history), strict=True):
        after = {} if run is None else dict(_statuses(run))
        then = {name: status for name, status in after.items() if before.get(name) != status}
        state = "" if run is None else sha256(to_snapshot(run)).hexdigest()[:STATE_CHARS]
        found.append(msgspec.structs.replace(stored, then=then, state=state))
        before = after
    return found


def _statuses(run: Run) -> Iterator[tuple[str, str]]:
    yield "run", run.status.value
    for step_id, step in run.steps.items():
        yield step_id, step.status.value
        elements = () if step.items is None else step.items.numbered()
        yield from ((f"{step_id}.{number}", element.status.name.lower()) for number, element in elements)


def record(path: Path) -> bool:
    """Add the snapshot to a file without one, and what follows from each record; False if it has one. Raises Sealed in
    the folder of a released version."""
    if (path.parent / SEAL).exists():
        raise Sealed(f"version {path.parent.name} is released: record it in the folder of the next one")
    history = read(path)
    if history.snapshot != MISSING:
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
    records = ",\n".join(f" {_line(stored)}" for stored in history.records)
    parts = [
        f'"about":{_line(history.about)}',
        f'"definition":{_line(history.definition)}',
        f'"records":[\n{records}\n]',
    ]
    if history.snapshot != MISSING:
        parts.append(f'"snapshot":{_line(history.snapshot)}')
    return ("{" + ",\n".join(parts) + "}\n").encode()


def _again(history: History) -> History:
    """As it would be recorded now."""
    return msgspec.structs.replace(history, records=followed(history), snapshot=Raw(snapshot(history)))


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
