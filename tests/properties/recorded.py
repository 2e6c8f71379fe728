"""Recorded histories: a definition, the records of a run's log, and the snapshot that they folded to when they were recorded.

`python -m tests.properties.recorded FILE…` adds the snapshot to files that have none yet. It never changes one that is there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import orjson
from msgspec import Raw, Struct

from penstock.engine.advance import fold
from penstock.engine.events import Record, decode
from penstock.engine.state import Run, to_snapshot
from penstock.engine.validation import parse
from penstock.engine.workflow import compile_workflow

FOLDER = Path(__file__).parent / "golden"


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


def read(path: Path) -> History:
    return msgspec.json.decode(path.read_bytes(), type=History)


def folded(history: History, first: int | None = None) -> Run | None:
    """The state after the first so many records (None: all)."""
    workflow = compile_workflow(parse(history.definition), "golden")
    return fold(workflow, None, (Record(stored.seq, stored.at, decode(bytes(stored.event))) for stored in history.records[:first]))


def snapshot(history: History) -> dict[str, object]:
    run = folded(history)
    assert run is not None, "the records start no run"
    found: dict[str, object] = orjson.loads(to_snapshot(run))
    return found


def record(path: Path) -> bool:
    """Add the snapshot to a file without one; False if it has one."""
    history = read(path)
    if history.snapshot is not None:
        return False
    path.write_bytes(written(msgspec.structs.replace(history, snapshot=snapshot(history))))
    return True


def written(history: History) -> bytes:
    """As it stands in the file: one record to a line."""
    parts = [f'"about":{_line(history.about)}', f'"definition":{_line(history.definition)}']
    records = ",\n".join(f" {_line(stored)}" for stored in history.records)
    return ("{" + ",\n".join([*parts, f'"records":[\n{records}\n]', f'"snapshot":{_line(history.snapshot)}']) + "}\n").encode()


def _line(value: object) -> str:
    return msgspec.json.encode(value).decode()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, "recorded" if record(Path(name)) else "has a snapshot, left as it is")
